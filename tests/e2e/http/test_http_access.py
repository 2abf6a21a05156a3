"""Who may call what over HTTP: tokens, roles, collections and certificates over real TLS, as over gRPC."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

import pytest

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc
from edge_rag.server.http.routes import ROUTES
from tests.e2e.support.secured_daemon import Box, edge_rag

READ = {
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model:path}"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/documents/{document:path}"),
}
QUESTION = {"model": "edge-rag/a", "messages": [{"role": "user", "content": "When does the galley open?"}]}


def request(box: Box, method: str, path: str, token: str | None, body: Any = None) -> tuple[int, dict[str, Any]]:
    host, _, port = box.running.http.removeprefix("https://").rpartition(":")
    trusted = ssl.create_default_context(cafile=str(box.data / "tls" / "ca.pem"))
    connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=trusted)
    headers = {"accept": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if body is not None:
        headers["content-type"] = "application/json"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_for_each_route_it_is_said_whom_it_is_for() -> None:
    assert {(route.method, route.path) for route in ROUTES} == READ


@pytest.mark.parametrize(("method", "path"), sorted(READ))
def test_each_route_is_for_the_roles_it_is_for_and_no_others(box: Box, method: str, path: str) -> None:
    allowed = {"admin", "reader", "reader-a"}
    named = path.replace("{model:path}", "edge-rag/a").replace("{document:path}", "galley.txt?collection=a")
    body = QUESTION if method == "POST" else None
    for name in ("admin", "reader", "reader-a", "writer-a", "peer"):
        status, found = request(box, method, named, box.tokens[name], body)
        assert status == (200 if name in allowed else 403), f"{name}: {found}"
    for unknown in (None, "erag_0123456789abcdef_" + "A" * 43, "nonsense"):
        status, found = request(box, method, named, unknown, body)
        assert (status, found["error"]["type"]) == (401, "authentication_error")


def test_a_collection_of_others_is_as_if_it_were_not_there(box: Box) -> None:
    token = box.tokens["reader-a"]
    _, models = request(box, "GET", "/v1/models", token)
    assert [model["id"] for model in models["data"]] == ["edge-rag/a"]
    with box.channel("admin") as channel:
        stub = documents_pb2_grpc.DocumentsStub(channel)
        secret = stub.Get(documents_pb2.GetDocumentRequest(collection="b", document="reactor.txt")).document.id
    for collection in ("b", "nothing"):
        question = {**QUESTION, "model": f"edge-rag/{collection}"}
        answers = [
            request(box, "POST", "/v1/chat/completions", token, question),
            request(box, "GET", f"/v1/models/edge-rag/{collection}", token),
            request(box, "GET", f"/documents/{secret}?collection={collection}", token),
        ]
        for status, found in answers:
            assert (status, found["error"]["message"]) == (404, f"collection '{collection}' does not exist")
    status, found = request(box, "GET", f"/documents/{secret}?collection=a", token)
    assert (status, found["error"]["code"]) == (404, "document_not_found")


def test_a_quota_is_one_over_both_transports(box: Box) -> None:
    seen = [request(box, "GET", "/v1/models", box.tokens["rare"])[0] for _ in range(3)]
    assert seen == [200, 200, 429]


def test_a_new_certificate_is_served_without_a_restart(box: Box) -> None:
    host, _, port = box.running.http.removeprefix("https://").rpartition(":")
    before = ssl.get_server_certificate((host, int(port)))
    edge_rag("tls", "init", "--host", "127.0.0.1", "--host", "box.lan", data=box.data)
    assert ssl.get_server_certificate((host, int(port))) != before
    assert request(box, "GET", "/v1/models", box.tokens["reader"])[0] == 200


def test_neither_a_token_nor_a_question_is_in_the_log(box: Box) -> None:
    log = box.running.log.read_text()
    assert "galley open" not in log
    assert not any(text.split("_", 2)[2] in log for text in box.tokens.values())
