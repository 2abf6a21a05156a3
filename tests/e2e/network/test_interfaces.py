from __future__ import annotations

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import RunningDaemon

SERVICES = ("edge_rag.v1.Admin", "edge_rag.v1.Documents", "edge_rag.v1.Rag")


@pytest.mark.smoke
def test_health_says_serving_for_the_server_and_each_service(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", *SERVICES):
            reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.smoke
def test_a_client_made_from_reflection_alone_can_search(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(SERVICES) <= set(database.get_services())
        pool = descriptor_pool.DescriptorPool(database)
        method = pool.FindServiceByName("edge_rag.v1.Rag").methods_by_name["Search"]
        request_class = message_factory.GetMessageClass(method.input_type)
        response_class = message_factory.GetMessageClass(method.output_type)
        search = channel.unary_unary(
            "/edge_rag.v1.Rag/Search",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )
        reply = search(request_class(query="bearing grease", limit=3), timeout=60)
    assert 1 <= len(reply.hits) <= 3
    assert any("greas" in hit.text for hit in reply.hits)


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
