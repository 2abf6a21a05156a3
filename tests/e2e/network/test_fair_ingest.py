from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, documents_pb2
from tests.e2e.support.jobs import final_states, parts, start_job, stub, watch
from tests.e2e.support.running_daemon import RunningDaemon, start_daemon
from tests.e2e.support.secured_daemon import Box, ask, edge_rag, token

QUEUED = documents_pb2.JOB_DOCUMENT_STATE_QUEUED
RUNNING = documents_pb2.JOB_STATE_RUNNING


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("writers")
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    tokens = {
        "eve": token("eve", data, "--collections", "eve", "--roles", "reader,writer"),
        "ada": token("ada", data, "--collections", "ada", "--roles", "writer"),
        "admin": token("admin", data, "--roles", "admin"),
    }
    config = f'local_listen = "unix:{folder}/socket"\n[tls]\nalways = true\n'
    with start_daemon(data, folder / "log", config) as running:
        yield Box(running, data, tokens)


def page(number: int) -> bytes:
    return "".join(f"Line {line} of page {number} names a valve and its month.\n\n" for line in range(60)).encode()


def long_text(sentences: int = 20_000) -> bytes:
    return "".join(f"Sentence {part} keeps the embedder busy for a while.\n\n" for part in range(sentences)).encode()


def hand_over(box: Box, who: str, documents: dict[str, bytes]) -> str:
    with box.channel(who) as channel:
        job, *_ = stub(channel).StartIngest(parts(documents, who), timeout=120)
        return job.job.id


def until_embedding(channel: grpc.Channel, job_id: str) -> None:
    for seen in stub(channel).WatchJob(documents_pb2.WatchJobRequest(job_id=job_id), timeout=120):
        if seen.work.phase == documents_pb2.INGEST_PHASE_EMBEDDING and seen.work.chunks_done:
            return
    raise AssertionError("the job ended before")


def follow(box: Box, who: str, job_id: str) -> list[documents_pb2.WatchJobResponse]:
    with box.channel(who) as channel:
        return list(stub(channel).WatchJob(documents_pb2.WatchJobRequest(job_id=job_id), timeout=120))


def latest(box: Box, who: str) -> documents_pb2.Job:
    with box.channel(who) as channel:
        return stub(channel).ListJobs(documents_pb2.ListJobsRequest(limit=1), timeout=60).jobs[0]


def cancel(box: Box, who: str, job_id: str) -> None:
    with box.channel(who) as channel:
        stub(channel).CancelJob(documents_pb2.CancelJobRequest(job_id=job_id), timeout=60)


def waiting(job: documents_pb2.Job) -> int:
    return sum(each.count for each in job.documents if each.state == QUEUED)


def test_two_documents_of_a_writer_are_answered_from_before_the_400_that_another_handed_over_first(
    writers: Box,
) -> None:
    many = hand_over(writers, "eve", {f"{number}.txt": page(number) for number in range(400)})
    few = hand_over(writers, "ada", {"x.txt": page(1), "y.txt": page(2)})

    pages = follow(writers, "ada", few)
    with writers.channel("admin") as channel:
        answered = ask(channel, "What does a line of page 2 name?", "ada")
    other = latest(writers, "eve")

    assert final_states(pages) == {"x.txt": "added", "y.txt": "added"}
    assert (other.id, other.state) == (many, RUNNING)
    assert waiting(other) > 100
    assert "names a valve and its month" in "".join(event.text.text for event in answered)
    assert other.time_left_seconds > 0
    assert pages[-1].job.documents_ahead == 0
    assert not pages[-1].job.HasField("time_left_seconds")
    cancel(writers, "eve", many)


def test_a_client_that_goes_ends_its_document(writers: Box) -> None:
    with writers.channel("eve") as channel:
        call = stub(channel).Ingest.future(parts({"gone.txt": long_text()}, "eve"), timeout=120)
        with writers.channel("admin") as admin:
            status = admin_pb2_grpc.AdminStub(admin)
            stages = (
                {stage.name: stage for stage in seen.status.stages}
                for seen in status.WatchStatus(admin_pb2.WatchStatusRequest(interval_seconds=0.2), timeout=120)
            )
            next(seen for seen in stages if seen["ingest"].running == 1)
            call.cancel()  # type: ignore[no-untyped-call]
            next(seen for seen in stages if seen["ingest"].running == 0)
        with pytest.raises(grpc.RpcError) as missing:
            stub(channel).Get(documents_pb2.GetDocumentRequest(collection="eve", document="gone.txt"), timeout=60)
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_daemon_that_is_stopped_during_a_large_document_goes_on_with_it_afterwards(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def run(log: str) -> RunningDaemon:
        return start_daemon(data, tmp_path / log)

    with run("first") as first:
        job_id, _ = start_job(first.address, {"large.txt": long_text(), "small.txt": b"The small valve is red."})
        with grpc.insecure_channel(first.address) as channel:
            until_embedding(channel, job_id)
        assert first.stop() == 0
    with run("second") as second, grpc.insecure_channel(second.address) as channel:
        jobs = stub(channel).ListJobs(documents_pb2.ListJobsRequest(), timeout=60).jobs
        assert [(job.id, job.state) for job in jobs] == [(job_id, RUNNING)]
        until_embedding(channel, job_id)
        names = stub(channel).List(documents_pb2.ListDocumentsRequest(), timeout=60).documents
        assert {document.name for document in names} <= {"small.txt"}
        stub(channel).CancelJob(documents_pb2.CancelJobRequest(job_id=job_id), timeout=60)
        assert final_states(watch(second.address, job_id))["large.txt"] == "cancelled"
