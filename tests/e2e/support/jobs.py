"""Jobs over the wire, as tests need them."""

from collections.abc import Iterable, Iterator, Mapping

import grpc

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc


def stub(channel: grpc.Channel) -> documents_pb2_grpc.DocumentsStub:
    return documents_pb2_grpc.DocumentsStub(channel)


def parts(documents: Mapping[str, bytes], collection: str = "default") -> Iterator[documents_pb2.IngestRequest]:
    for name, content in documents.items():
        header = documents_pb2.IngestRequest.Header(collection=collection, name=name, size_bytes=len(content))
        yield documents_pb2.IngestRequest(header=header)
        for start in range(0, len(content), 1 << 18):
            yield documents_pb2.IngestRequest(content=content[start : start + (1 << 18)])


def start_job(address: str, documents: Mapping[str, bytes], collection: str = "default") -> tuple[str, list[str]]:
    with grpc.insecure_channel(address) as channel:
        responses = list(stub(channel).StartIngest(parts(documents, collection), timeout=120))
    accepted = [r.document.name for r in responses[1:] if r.document.state == documents_pb2.JOB_DOCUMENT_STATE_QUEUED]
    return responses[0].job.id, accepted


def watch(address: str, job_id: str, cursor: int = 0) -> list[documents_pb2.WatchJobResponse]:
    with grpc.insecure_channel(address) as channel:
        request = documents_pb2.WatchJobRequest(job_id=job_id, cursor=cursor)
        return list(stub(channel).WatchJob(request, timeout=300))


def final_states(pages: Iterable[documents_pb2.WatchJobResponse]) -> dict[str, str]:
    states = {document.name: document.state for page in pages for document in page.documents}
    prefix = "JOB_DOCUMENT_STATE_"
    return {
        name: documents_pb2.JobDocumentState.Name(state).removeprefix(prefix).lower() for name, state in states.items()
    }
