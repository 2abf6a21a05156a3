import grpc
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import RunningDaemon


def test_search_orders_by_score_with_and_without_the_reranker(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        for rerank, stages in ((True, ["retriever", "reranker"]), (False, ["retriever"])):
            request = rag_pb2.SearchRequest(query="bearing grease interval", limit=5, rerank=rerank)
            reply = rag_pb2_grpc.RagStub(channel).Search(request, timeout=60)
            scores = [hit.score for hit in reply.hits]
            assert scores == sorted(scores, reverse=True)
            assert len(scores) == 5
            assert [stage.stage for stage in reply.stages] == stages


@pytest.mark.smoke
def test_a_request_id_is_kept_or_made_and_returned(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        rag = rag_pb2_grpc.RagStub(channel)
        for given in ("ticket-17", ""):
            call = rag.Ask(rag_pb2.AskRequest(question="How often?", request_id=given), timeout=60)
            returned = dict(call.initial_metadata())["edge-rag-request-id"]
            list(call)
            assert returned == given if given else len(returned) == 32
