"""Who may call what over HTTP: tokens, roles, collections and certificates over real TLS, as over gRPC."""

import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, documents_pb2, documents_pb2_grpc
from edge_rag.server.http.mcp import OPERATIONS
from edge_rag.server.http.routes import ROUTES
from tests.e2e.support.secured_daemon import Box, edge_rag
from tests.e2e.support.secured_daemon import token as make_token

READERS = frozenset({"admin", "reader", "reader-a"})
WRITERS = frozenset({"admin", "writer-a"})
PEERS = frozenset({"admin", "peer"})
ADMINS = frozenset({"admin"})
EVERYBODY = READERS | WRITERS | PEERS
"""Callers with a token."""

UNKNOWN = (None, "erag_0123456789abcdef_" + "A" * 43, "nonsense")
"""What callers without an identity show: nothing, or tokens that do not exist."""

QUESTION = {"model": "edge-rag/a", "messages": [{"role": "user", "content": "When does the galley open?"}]}
RANKED = {"query": "When?", "documents": ["At six.", "At nine."]}

TOOL_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "When does the galley open?", "collection": "a"}},
}

PARAMETERS = {
    "model": "edge-rag/a",
    "document": "galley.txt",
    "page": "1",
    "store": "a",
    "file": "none",
    "batch": "none",
    "upload": "none",
    "collection": "a",
    "job": "0",
    "role": "generator",
    "backup": "20000101T000000Z.edge-rag",
    "hash": "none",
    "token": "0" * 16,
    "feedback": "0" * 32,
    "position": "0",
    "question": "0" * 20,
}
"""Parameters of paths, by name, that a reader of collection ``a`` may use."""


@dataclass(frozen=True)
class Row:
    """Whom a route is for, and what its callers get.

    Attributes:
        callers: Who may call it; all others get 403, and those without an identity 401.
        status: What each of its callers gets. Whoever could change something that others in this file need asks for
            something that does not exist (404), or leaves out a field (400): both are behind the door.
        query: Query string of the request.
        body: JSON of the request; None for none.
        strangers: What callers without an identity get.
        parameters: Parameters of the path that are not as in ``PARAMETERS``.
    """

    callers: frozenset[str]
    status: int = 200
    query: str = ""
    body: Any = None
    strangers: int = 401
    parameters: Mapping[str, str] = field(default_factory=dict)


ROWS = {
    ("GET", "/v1/models"): Row(READERS),
    ("GET", "/v1/models/{model:path}"): Row(READERS),
    ("POST", "/v1/chat/completions"): Row(READERS, body=QUESTION),
    ("POST", "/v1/embeddings"): Row(READERS, body={"input": "The galley opens at six."}),
    ("POST", "/v1/rerank"): Row(READERS, body=RANKED),
    ("POST", "/v2/rerank"): Row(READERS, body=RANKED),
    ("POST", "/v1/responses"): Row(READERS, body={"model": "edge-rag/a", "input": "When does the galley open?"}),
    ("GET", "/v1/vector_stores"): Row(READERS),
    ("POST", "/v1/vector_stores"): Row(ADMINS, 400, body={"expires_after": {"days": 1}}),
    ("GET", "/v1/vector_stores/{store}"): Row(READERS),
    ("POST", "/v1/vector_stores/{store}"): Row(ADMINS, 400, body={"expires_after": {"days": 1}}),
    ("DELETE", "/v1/vector_stores/{store}"): Row(ADMINS, 404, parameters={"store": "nothing"}),
    ("POST", "/v1/vector_stores/{store}/search"): Row(READERS, body={"query": "When does the galley open?"}),
    ("POST", "/v1/files"): Row(WRITERS, 400),
    ("GET", "/v1/files"): Row(READERS | WRITERS),
    ("GET", "/v1/files/{file}"): Row(READERS | WRITERS, 404),
    ("DELETE", "/v1/files/{file}"): Row(WRITERS, 404),
    ("GET", "/v1/files/{file}/content"): Row(READERS | WRITERS, 404),
    ("POST", "/v1/vector_stores/{store}/files"): Row(WRITERS, 400, body={}),
    ("GET", "/v1/vector_stores/{store}/files"): Row(READERS | WRITERS),
    ("GET", "/v1/vector_stores/{store}/files/{file}"): Row(READERS | WRITERS, 404),
    ("POST", "/v1/vector_stores/{store}/files/{file}"): Row(WRITERS, 400, body={}),
    ("DELETE", "/v1/vector_stores/{store}/files/{file}"): Row(WRITERS, 404),
    ("GET", "/v1/vector_stores/{store}/files/{file}/content"): Row(READERS, 404),
    ("POST", "/v1/vector_stores/{store}/file_batches"): Row(WRITERS, 400, body={}),
    ("GET", "/v1/vector_stores/{store}/file_batches/{batch}"): Row(READERS | WRITERS, 404),
    ("POST", "/v1/vector_stores/{store}/file_batches/{batch}/cancel"): Row(WRITERS, 404),
    ("GET", "/v1/vector_stores/{store}/file_batches/{batch}/files"): Row(READERS | WRITERS, 404),
    ("GET", "/documents/{document}/original"): Row(READERS, query="collection=a"),
    ("GET", "/documents/{document}/pages/{page}"): Row(READERS, 404, query="collection=a"),
    ("GET", "/documents/{document}/pages/{page}/boxes"): Row(READERS, 404, query="collection=a&start=0&end=9"),
    ("GET", "/documents/{document:path}"): Row(READERS, query="collection=a"),
    ("POST", "/mcp"): Row(READERS, body=TOOL_CALL),
    ("POST", "/api/v1/ask"): Row(READERS, body={"question": "When does the galley open?", "collection": "a"}),
    ("GET", "/api/v1/ask"): Row(READERS),
    ("POST", "/api/v1/search"): Row(READERS, body={"question": "When does the galley open?", "collection": "a"}),
    ("GET", "/api/v1/collections"): Row(READERS),
    ("POST", "/api/v1/collections"): Row(ADMINS, 400, body={}),
    ("GET", "/api/v1/collections/{collection}"): Row(READERS),
    ("PATCH", "/api/v1/collections/{collection}"): Row(ADMINS, 400, body={}),
    ("DELETE", "/api/v1/collections/{collection}"): Row(ADMINS, 404, parameters={"collection": "nothing"}),
    ("PUT", "/api/v1/collections/{collection}/index"): Row(ADMINS, 400, body={}),
    ("GET", "/api/v1/collections/{collection}/documents"): Row(READERS),
    ("GET", "/api/v1/collections/{collection}/documents/{document:path}"): Row(READERS),
    ("PUT", "/api/v1/collections/{collection}/documents/{document:path}"): Row(
        WRITERS, 400, parameters={"document": "x" * 1025}
    ),
    ("PUT", "/api/v1/collections/{collection}/queue/{document:path}"): Row(
        WRITERS, 400, parameters={"document": "x" * 1025}
    ),
    ("DELETE", "/api/v1/collections/{collection}/documents/{document:path}"): Row(
        WRITERS, 404, parameters={"document": "nothing"}
    ),
    ("GET", "/api/v1/collections/{collection}/chunks"): Row(READERS, query="document=galley.txt"),
    ("GET", "/api/v1/collections/{collection}/chunks/{position}/terms"): Row(READERS, query="document=galley.txt"),
    ("GET", "/api/v1/collections/{collection}/test-questions"): Row(READERS),
    ("POST", "/api/v1/collections/{collection}/test-questions"): Row(WRITERS, 400, body={}),
    ("PUT", "/api/v1/collections/{collection}/test-questions"): Row(WRITERS, 400, body={}),
    ("DELETE", "/api/v1/collections/{collection}/test-questions/{question}"): Row(WRITERS, 404),
    ("POST", "/api/v1/collections/{collection}/test-questions/run"): Row(READERS, 400, body={}),
    ("GET", "/api/v1/jobs"): Row(WRITERS),
    ("GET", "/api/v1/jobs/{job}"): Row(WRITERS, 404),
    ("POST", "/api/v1/jobs/{job}/cancel"): Row(WRITERS, 404),
    ("GET", "/api/v1/jobs/{job}/events"): Row(WRITERS, 404),
    ("GET", "/api/v1/status"): Row(ADMINS),
    ("GET", "/api/v1/status/events"): Row(ADMINS, 400, query="interval_s=0"),
    ("GET", "/api/v1/audit"): Row(ADMINS),
    ("GET", "/api/v1/audit/events"): Row(ADMINS, 400, query="after=x"),
    ("GET", "/api/v1/usage"): Row(ADMINS),
    ("GET", "/api/v1/models"): Row(ADMINS),
    ("PUT", "/api/v1/models/{role}"): Row(ADMINS, 400, body={}),
    ("GET", "/api/v1/models/catalog"): Row(ADMINS),
    ("GET", "/api/v1/models/installed"): Row(ADMINS),
    ("POST", "/api/v1/models/installed"): Row(ADMINS, 400, body={"source": "/etc"}),
    ("DELETE", "/api/v1/models/installed/{model}"): Row(ADMINS, 404, parameters={"model": "nothing"}),
    ("POST", "/api/v1/models/installed/{model}/verify"): Row(ADMINS, 404, parameters={"model": "nothing"}),
    ("POST", "/api/v1/models/installed/{model}/choose"): Row(ADMINS, 404, parameters={"model": "nothing"}),
    ("GET", "/api/v1/models/jobs/{job}/events"): Row(ADMINS, 404, parameters={"job": "9"}),
    ("POST", "/api/v1/models/jobs/{job}/cancel"): Row(ADMINS, 404, parameters={"job": "9"}),
    ("GET", "/api/v1/backup"): Row(ADMINS),
    ("GET", "/api/v1/backups"): Row(ADMINS),
    ("POST", "/api/v1/backups"): Row(ADMINS, body={}),
    ("GET", "/api/v1/backups/{backup}"): Row(ADMINS, 404),
    ("DELETE", "/api/v1/backups/{backup}"): Row(ADMINS, 404),
    ("GET", "/api/v1/tokens"): Row(ADMINS),
    ("POST", "/api/v1/tokens"): Row(ADMINS, 400, body={"name": "a name with spaces"}),
    ("PATCH", "/api/v1/tokens/{token}"): Row(ADMINS, 404, body={"settings": {"expires": None}}),
    ("DELETE", "/api/v1/tokens/{token}"): Row(ADMINS, 404),
    ("POST", "/api/v1/pairing-codes"): Row(ADMINS, 400, body={"name": "a name with spaces"}),
    ("POST", "/api/v1/feedback"): Row(READERS, 400, body={"request_id": "one", "rating": "sideways"}),
    ("GET", "/api/v1/feedback"): Row(ADMINS),
    ("DELETE", "/api/v1/feedback/{feedback}"): Row(ADMINS, 404),
    ("GET", "/api/v1/whoami"): Row(EVERYBODY),
    ("POST", "/api/v1/pair"): Row(EVERYBODY, 400, body={}, strangers=400),
    ("POST", "/api/v1/session"): Row(EVERYBODY, 400, body={}, strangers=400),
    ("DELETE", "/api/v1/session"): Row(EVERYBODY),
    ("GET", "/api/v1/openapi.json"): Row(EVERYBODY),
    ("GET", "/healthz"): Row(EVERYBODY, strangers=200),
    ("GET", "/readyz"): Row(EVERYBODY, strangers=200),
    ("GET", "/"): Row(EVERYBODY, strangers=200),
    ("GET", "/console/{hash}/{file:path}"): Row(EVERYBODY, 404, strangers=404),
}
"""Every route by method and path."""


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
        content = response.read()
        is_json = response.headers.get_content_type() == "application/json" and content
        return response.status, json.loads(content) if is_json else {"text": content}
    finally:
        connection.close()


def error_type(found: dict[str, Any]) -> str:
    """Returns the type of an error, which MCP has among the further data of one."""
    error = found["error"]
    return str(error["data"]["type"] if "data" in error else error["type"])


def test_for_each_route_it_is_said_whom_it_is_for() -> None:
    assert {(route.method, route.path) for route in ROUTES} == set(ROWS)


@pytest.mark.parametrize(("method", "path"), sorted(ROWS))
def test_each_route_is_for_the_callers_it_is_for_and_no_others(box: Box, method: str, path: str) -> None:
    row = ROWS[method, path]
    place = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: {**PARAMETERS, **row.parameters}[found[1]], path)
    place += f"?{row.query}" if row.query else ""
    for name in sorted(EVERYBODY):
        status, found = request(box, method, place, box.tokens[name], row.body)
        assert status == (row.status if name in row.callers else 403), f"{name}: {found}"
    for token in UNKNOWN:
        status, found = request(box, method, place, token, row.body)
        assert status == row.strangers, found
        assert status != 401 or method == "HEAD" or error_type(found) == "authentication_error"


def test_a_collection_of_others_is_as_if_it_were_not_there(box: Box) -> None:
    token = box.tokens["reader-a"]
    _, models = request(box, "GET", "/v1/models", token)
    assert [model["id"] for model in models["data"] if model["id"].startswith("edge-rag/")] == ["edge-rag/a"]
    _, stores = request(box, "GET", "/v1/vector_stores", token)
    assert [store["id"] for store in stores["data"]] == ["a"]
    with box.channel("admin") as channel:
        stub = documents_pb2_grpc.DocumentsStub(channel)
        secret = stub.Get(documents_pb2.GetDocumentRequest(collection="b", document="reactor.txt")).document.id
    for collection in ("b", "nothing"):
        question = {**QUESTION, "model": f"edge-rag/{collection}"}
        answers = [
            request(box, "POST", "/v1/chat/completions", token, question),
            request(box, "GET", f"/v1/models/edge-rag/{collection}", token),
            request(box, "GET", f"/documents/{secret}?collection={collection}", token),
            request(box, "GET", f"/v1/vector_stores/{collection}", token),
            request(box, "POST", f"/v1/vector_stores/{collection}/search", token, {"query": "What is the code?"}),
            request(box, "GET", f"/v1/vector_stores/{collection}/files", token),
            request(box, "POST", "/api/v1/ask", token, {"question": "What is the code?", "collection": collection}),
            request(box, "POST", "/api/v1/search", token, {"question": "the code", "collection": collection}),
            request(box, "GET", f"/api/v1/collections/{collection}", token),
            request(box, "GET", f"/api/v1/collections/{collection}/documents", token),
            request(box, "GET", f"/api/v1/collections/{collection}/documents/{secret}", token),
            request(box, "GET", f"/v1/vector_stores/{collection}/files/{secret}", token),
            request(box, "GET", f"/v1/vector_stores/{collection}/files/{secret}/content", token),
        ]
        for status, found in answers:
            assert (status, found["error"]["message"]) == (
                404,
                f"collection '{collection}' does not exist for you; you may use: a",
            )
    status, found = request(box, "GET", f"/documents/{secret}?collection=a", token)
    assert (status, found["error"]["code"]) == (404, "document_not_found")


@pytest.fixture
def sdk(box: Box) -> Iterator[Callable[[str], Any]]:
    """Returns OpenAI's client with a token, by its name."""
    trusted = ssl.create_default_context(cafile=str(box.data / "tls" / "ca.pem"))
    with ExitStack() as opened:

        def client(name: str) -> Any:
            http = openai.DefaultHttpxClient(verify=trusted)
            known = openai.OpenAI(
                base_url=f"{box.running.http}/v1", api_key=box.tokens[name], max_retries=0, http_client=http
            )
            return opened.enter_context(known)

        yield client


def test_a_writer_attaches_its_own_files_to_its_own_collections(box: Box, sdk: Callable[[str], Any]) -> None:
    admin, writer, reader = sdk("admin"), sdk("writer-a"), sdk("reader-a")
    anchor = b"The anchor chain is inspected by the bosun before the ship leaves."
    stored = writer.vector_stores.files.upload_and_poll(
        vector_store_id="a", file=("anchor.txt", anchor), attributes={"part": "deck"}
    )
    assert (stored.status, stored.attributes) == ("completed", {})  # metadata are text of documents, for readers
    seen = reader.vector_stores.files.retrieve(stored.id, vector_store_id="a")
    assert (seen.status, seen.attributes) == ("completed", {"part": "deck"})
    (found,) = reader.vector_stores.search("a", query="Who inspects the anchor chain?", max_num_results=1)
    assert found.file_id == stored.id

    for collection in ("b", "nothing"):
        with pytest.raises(openai.NotFoundError, match=f"collection '{collection}' does not exist"):
            writer.vector_stores.files.create(collection, file_id=stored.id)
    foreign = admin.files.create(file=("secret.txt", b"Nobody else may read this."), purpose="assistants").id
    for file_id in (foreign, "file-unknown"):
        with pytest.raises(openai.NotFoundError, match=f"file '{file_id}' does not exist"):
            writer.vector_stores.files.create("a", file_id=file_id)
    with pytest.raises(openai.PermissionDeniedError):
        writer.vector_stores.create(name="mine")
    with pytest.raises(openai.PermissionDeniedError):
        reader.vector_stores.files.delete(stored.id, vector_store_id="a")
    batch = admin.vector_stores.file_batches.create_and_poll("b", file_ids=[foreign])
    for collection in ("a", "b"):
        with pytest.raises(openai.NotFoundError):
            writer.vector_stores.file_batches.cancel(batch.id, vector_store_id=collection)
    assert writer.vector_stores.files.delete(stored.id, vector_store_id="a").deleted


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {**TOOL_CALL, "params": {"name": name, "arguments": arguments}}


def test_each_tool_is_an_operation_of_its_own(box: Box) -> None:
    _, listed = request(box, "POST", "/mcp", box.tokens["writer-a"], {**TOOL_CALL, "method": "tools/list"})
    assert {each["name"] for each in listed["result"]["tools"]} == set(OPERATIONS)
    with box.channel("admin") as channel:
        audit = admin_pb2_grpc.AdminStub(channel).ListAuditEvents
        status, found = request(box, "POST", "/mcp", box.tokens["writer-a"], tool("ask", question="When?"))
        assert (status, found["error"]["message"]) == (403, "Ask needs the role reader; writer-a does not have it")
        events = [each.event for each in audit(admin_pb2.ListAuditEventsRequest())]
        assert events[-1].reason == "Ask: the client is not permitted"
        secret = documents_pb2.GetDocumentRequest(collection="b", document="reactor.txt")
        hidden = documents_pb2_grpc.DocumentsStub(channel).Get(secret).document.id
    reader = box.tokens["reader-a"]
    _, found = request(box, "POST", "/mcp", reader, tool("list_collections"))
    assert [each["name"] for each in found["result"]["structuredContent"]["collections"]] == ["a"]
    for call in (tool("fetch", id=f"b/{hidden}"), tool("search", query="code", collection="b")):
        status, found = request(box, "POST", "/mcp", reader, call)
        assert (status, found["result"]["isError"]) == (200, True)
        assert found["result"]["content"][0]["text"] == "collection 'b' does not exist for you; you may use: a"


def test_a_quota_is_one_over_both_transports(box: Box) -> None:
    seen = [request(box, "GET", "/v1/models", box.tokens["rare"])[0] for _ in range(3)]
    assert seen == [200, 200, 429]


def test_a_conversation_with_the_language_model_counts_in_the_quota_of_tokens(box: Box) -> None:
    frugal = make_token("frugal", box.data, "--quota", "20 tokens/min")
    messages = [{"role": "user", "content": "Tell me about the galley. " * 10}]
    talk = {"model": "quoter", "messages": messages, "max_tokens": 4}
    seen = [request(box, "POST", "/v1/chat/completions", frugal, talk) for _ in range(2)]
    assert [status for status, _ in seen] == [200, 429]
    assert seen[0][1]["usage"]["total_tokens"] > 20


def run_questions(box: Box, token: str) -> tuple[int, dict[str, Any]]:
    status, found = request(box, "POST", "/api/v1/collections/a/test-questions/run", token)
    if status != 200:
        return status, found
    *_, last = found["text"].decode().rstrip("\n").split("\n\n")
    return status, json.loads(last.partition("data: ")[2])


def test_test_questions_are_kept_of_writers_and_charged_to_whoever_runs_them(box: Box) -> None:
    reader, writer, admin = (box.tokens[name] for name in ("reader-a", "writer-a", "admin"))
    place = "/api/v1/collections/a/test-questions"
    question = {"question": "When does the galley open?", "document": "galley.txt"}
    status, added = request(box, "POST", place, writer, question)
    assert status == 200
    assert "galley" not in json.dumps(added["question"]["result"])
    try:
        _, finished = run_questions(box, reader)
        assert (finished["kept"], finished["run"]["summary"]["recall_at_1"]) == (False, 1)
        assert request(box, "GET", place, reader)[1]["run"] is None
        _, finished = run_questions(box, admin)
        assert finished["kept"]
        assert request(box, "GET", place, reader)[1]["run"] == finished["run"]
        assert request(box, "GET", place, writer)[0] == 403
        assert request(box, "GET", "/api/v1/collections/b/test-questions", reader)[0] == 404
        frugal = make_token("frugal-runner", box.data, "--quota", "20 tokens/min")
        assert [run_questions(box, frugal)[0] for _ in range(2)] == [200, 429]
    finally:
        request(box, "DELETE", f"{place}/{added['question']['id']}", writer)


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
