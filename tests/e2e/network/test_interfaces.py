from __future__ import annotations

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
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


def test_documents_are_listed_page_by_page_once_each(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        documents = documents_pb2_grpc.DocumentsStub(channel)
        whole = [document.name for document in documents.List(documents_pb2.ListDocumentsRequest()).documents]
        paged: list[str] = []
        token = ""
        while True:
            request = documents_pb2.ListDocumentsRequest(page_size=3, page_token=token)
            page = documents.List(request)
            assert len(page.documents) <= 3
            paged += [document.name for document in page.documents]
            token = page.next_page_token
            if not token:
                break
    assert paged == whole
    assert len(set(whole)) == len(whole) >= 10


def test_status_names_the_models_the_stages_and_the_cache(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        status = admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=30)
    assert [model.role for model in status.models] == ["embedder", "reranker", "generator"]
    assert [stage.name for stage in status.stages] == ["retriever", "reranker", "generator", "ingest"]
    assert status.state == admin_pb2.DAEMON_STATE_SERVING
    assert status.address == daemon.address
    assert status.data_directory == str(daemon.data_dir)
    assert status.engine.pages > 0
    assert status.engine.page_tokens > 0
    assert status.resident_bytes > 1 << 20


@pytest.mark.smoke
def test_a_request_id_is_kept_or_made_and_returned(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        rag = rag_pb2_grpc.RagStub(channel)
        for given in ("ticket-17", ""):
            call = rag.Ask(rag_pb2.AskRequest(question="How often?", request_id=given), timeout=60)
            returned = dict(call.initial_metadata())["edge-rag-request-id"]
            list(call)
            assert returned == given if given else len(returned) == 32
