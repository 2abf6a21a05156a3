"""The official MCP client against a daemon, over HTTP and over standard input and output, in both revisions."""

import asyncio
import http.client
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest

from edge_rag.client import AnswerMode, AskOptions, AuditEntry, AuditEventKind, Client, TextDelta, Unrecognized
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest, sample_documents, start_daemon

CONFIG = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n[generator]\nmax_slots = 1\n'
QUESTION = "How often must the pump bearings be greased?"
FOLLOW_UP = "How many grams of grease do they take?"
MISSPELLED = "how offten to grese the bearngs of the pmp"
PREFIX = "io.modelcontextprotocol/"
MODERN, OLDER = "2026-07-28", "2025-11-25"
CARRIERS = [(carrier, version) for carrier in ("http", "stdio") for version in (MODERN, OLDER)]

ENDS = (AuditEventKind.FINISHED, AuditEventKind.CANCELLED, AuditEventKind.EXPIRED, AuditEventKind.FAILED)

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": "grease of the pump bearings", "limit": 3}),
    ("search", {"query": "grease of the pump bearings", "filter": 'name ~ "lub*"'}),
    ("fetch", {"id": "default/lubrication-schedule.md", "start": 130, "end": 237}),
    ("fetch", {"id": "lubrication-schedule.md", "start": 10_000_000}),
    ("ask", {"question": QUESTION}),
    ("ask", {"question": QUESTION, "mode": "cite", "passages": 2}),
    ("ask", {"question": FOLLOW_UP, "turns": [{"question": QUESTION, "answer": "Every 2,000 hours."}]}),
    ("ask", {"question": "Which colour does the moon's dragon prefer on Thursdays?"}),
    ("search", {"query": MISSPELLED, "limit": 1}),
    ("ask", {"question": MISSPELLED}),
    ("list_documents", {"limit": 4}),
    ("list_collections", {}),
]
"""Each tool with arguments for which it has a result."""

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("search", {"query": "grease", "collection": "nothing"}, "collection 'nothing' does not exist"),
    ("search", {"query": "grease", "limit": 101}, "limit: must be an integer from 1 to 100"),
    ("search", {"query": "grease", "where": "x"}, "where: is not an argument of search"),
    ("ask", {"question": QUESTION, "filter": "year >"}, "filter"),
    ("ask", {"question": QUESTION, "mode": "poem"}, "mode: must be one of quote, cite, free"),
    ("ask", {}, "question: is missing"),
    ("ask", {"question": FOLLOW_UP, "turns": [QUESTION]}, "turns: must be an array of objects"),
    ("ask", {"question": FOLLOW_UP, "turns": [{"answer": "Daily."}]}, "turns[0].question: is missing"),
    ("ask", {"question": FOLLOW_UP, "turns": [{"question": "x", "who": "I"}]}, "turns[0].who: is none of question"),
    ("ask", {"question": FOLLOW_UP, "turns": [{"question": "x" * 9000}]}, "turns[0].question"),
    ("fetch", {"id": "default/nothing.txt"}, "nothing.txt"),
    ("fetch", {"id": "No Collection/x"}, "id: must match"),
    ("fetch", {"id": "x", "start": 5, "end": 4}, "end: must be"),
    ("list_documents", {"cursor": "bogus"}, "was not issued by this server"),
]
"""Arguments that a tool refuses, and what it says."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with start_daemon(folder / "data", folder / "log", CONFIG) as running:
        ingest(running.address, sample_documents())
        yield running


@asynccontextmanager
async def connected(daemon: RunningDaemon, carrier: str, version: str) -> AsyncIterator[Any]:
    command = ["-m", "edge_rag.cli.main", "mcp", "--server", daemon.address]
    stdio = mcp.StdioServerParameters(command=sys.executable, args=command, cwd=str(ROOT))
    target = f"{daemon.http}/mcp" if carrier == "http" else stdio
    async with mcp.Client(target, mode="legacy" if version == OLDER else version) as client:
        assert client.protocol_version == version
        yield client


@pytest.fixture(scope="module")
def expected(daemon: RunningDaemon) -> list[Any]:
    """What each of the calls returns, by requests of our own."""
    found = [post(daemon, message(name, arguments))[1]["result"] for name, arguments in CALLS]
    assert not any(result["isError"] for result in found)
    return [result["structuredContent"] for result in found]


def message(tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **more}


def modern(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    meta: dict[str, Any] = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientCapabilities": {}}
    params = {**body.get("params", {}), "_meta": meta}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": body["method"]}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    return {**body, "params": params}, headers


def post(daemon: RunningDaemon, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    host, _, port = daemon.http.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", "/mcp", data, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
    finally:
        connection.close()


@pytest.mark.smoke
@pytest.mark.parametrize(("carrier", "version"), CARRIERS)
async def test_every_tool_is_listed_and_has_the_same_results(
    daemon: RunningDaemon, expected: list[Any], carrier: str, version: str
) -> None:
    async with connected(daemon, carrier, version) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {name for name, _ in CALLS}
        assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools)
        for (name, arguments), result in zip(CALLS, expected, strict=True):
            found = await client.call_tool(name, arguments)  # the client checks it against the output schema
            assert (found.is_error, found.structured_content) == (False, result)
            assert [json.loads(part.text) for part in found.content] == [result]
        for name, arguments, reason in REFUSED:
            refused = await client.call_tool(name, arguments)
            assert refused.is_error
            assert reason in refused.content[0].text
        with pytest.raises(mcp.MCPError, match="there is no tool 'delete'"):
            await client.call_tool("delete", {})


def test_results_say_where_they_are_from_word_for_word(daemon: RunningDaemon, expected: list[Any]) -> None:
    found, filtered, part, beyond, answer, written, followed, unanswered, *misspelled, page, collections = expected
    cited = answer["citations"][0]
    assert (answer["found"], answer["mode"], unanswered["found"]) == (True, "quote", False)
    assert (written["mode"], written["model"], answer["model"]) == ("cite", "quoter", None)
    assert unanswered["citations"] == answer["nearest"] == answer["given_to_model"] == []
    assert all(near["text"] and near["lacks"] and near["url"] for near in unanswered["nearest"])
    assert unanswered["nearest"]
    assert "35 grams" in followed["answer"]
    assert "bearings" in followed["standalone_question"]
    assert answer["standalone_question"] is None
    assert found["did_you_mean"] is answer["did_you_mean"] is None
    for one in misspelled:
        assert one["did_you_mean"].endswith("to grease the bearings of the pump")
    assert {hit["title"] for hit in filtered["results"]} == {"lubrication-schedule.md"}
    source = sample_documents()["lubrication-schedule.md"].decode().splitlines()
    assert cited["quote"].split()[0] in source[cited["line"] - 1]
    assert answer["answer"][cited["answer_start"] : cited["answer_end"]] == cited["quote"]
    for place, text in (
        (cited, cited["quote"]),
        *((hit, hit["text"]) for hit in found["results"]),
        (part, part["text"]),
    ):
        with urllib.request.urlopen(place["url"], timeout=30) as reply:
            assert reply.read().decode() == text
        assert place["id"].startswith("default/")
    assert part["text"].startswith("The pump bearings must be greased")
    assert part["metadata"]["next_start"] == part["metadata"]["end"] == 237
    assert (beyond["text"], beyond["metadata"]["next_start"]) == ("", None)
    assert collections["collections"] == [{"name": "default", "description": "", "documents": len(sample_documents())}]
    seen = [document["name"] for document in page["documents"]]
    while page["next_cursor"]:
        body = message("list_documents", {"limit": 4, "cursor": page["next_cursor"]})
        page = post(daemon, body)[1]["result"]["structuredContent"]
        seen += [document["name"] for document in page["documents"]]
    assert sorted(seen) == sorted(sample_documents())


@pytest.mark.smoke
@pytest.mark.parametrize(("carrier", "version"), CARRIERS)
async def test_progress_tells_the_answer_while_it_is_written(daemon: RunningDaemon, carrier: str, version: str) -> None:
    reports: list[tuple[float, str]] = []

    async def on_progress(amount: float, total: float | None, text: str | None) -> None:
        reports.append((amount, text or ""))

    async with connected(daemon, carrier, version) as client:
        question = {"question": QUESTION, "mode": "free"}
        told = (await client.call_tool("ask", question, progress_callback=on_progress)).structured_content
    answer = told["answer"]
    assert told["citations"] == []
    assert told["given_to_model"]
    first, *rest = reports
    assert first[0] == 0
    assert first[1].startswith("passages found: ")
    assert len(rest) >= 2
    assert "".join(text for _, text in rest) == answer
    assert [amount for amount, _ in rest] == [len("".join(text for _, text in rest[: n + 1])) for n in range(len(rest))]


@pytest.mark.parametrize(("carrier", "version"), CARRIERS)
async def test_a_cancelled_answer_is_not_written(daemon: RunningDaemon, carrier: str, version: str) -> None:
    with Client(daemon.address, timeout_s=120) as own, ThreadPoolExecutor(1) as pool:
        # It has the only slot of the generator until it is closed.
        long = own.ask(QUESTION, AskOptions(mode=AnswerMode.FREE, regex="[a-z ]{4000}", max_tokens=1500))
        assert any(isinstance(event, TextDelta) for event in long)
        known = {entry.event.request_id for entry in own.audit_events() if isinstance(entry, AuditEntry)}

        def new_request() -> str:
            entries = (each.event for each in own.audit_events(follow=True) if isinstance(each, AuditEntry))
            queued = (event.request_id for event in entries if event.kind is AuditEventKind.QUEUED)
            return next(request_id for request_id in queued if request_id and request_id not in known)

        def end_of(request_id: str) -> AuditEventKind | Unrecognized:
            entries = own.audit_events(request_id, follow=True)
            return next(each.event.kind for each in entries if isinstance(each, AuditEntry) and each.event.kind in ENDS)

        started = asyncio.Event()

        async def on_progress(amount: float, total: float | None, text: str | None) -> None:
            started.set()

        async with connected(daemon, carrier, version) as client:
            queued = asyncio.wrap_future(pool.submit(new_request))
            question = {"question": QUESTION, "mode": "free"}
            call = asyncio.create_task(client.call_tool("ask", question, progress_callback=on_progress))
            await started.wait()
            request_id = await queued
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.wrap_future(pool.submit(end_of, request_id)) is AuditEventKind.CANCELLED
            assert not (await client.call_tool("list_collections", {})).is_error
        long.close()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b"[" * 100_000, 400, -32600),
        (b'{"a":' * 50_000, 400, -32700),
        (b"[]", 400, -32600),
        (b"null", 400, -32700),
        (b'"\\ud800"', 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', 400, -32700),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/destroy"}, 200, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": ["x"]}}, 200, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": []}}, 200, -32602),
        (modern({"jsonrpc": "2.0", "id": 1, "method": "ping"}), 404, -32601),
        (modern({"jsonrpc": "2.0", "id": 1, "method": "initialize"}), 404, -32601),
        (({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"mcp-protocol-version": MODERN}), 400, -32602),
        (({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"mcp-protocol-version": "1900-01-01"}), 400, -32022),
    ],
)
def test_a_message_that_no_honest_client_sends_is_refused(
    daemon: RunningDaemon, body: Any, status: int, code: int
) -> None:
    sent, headers = body if isinstance(body, tuple) else (body, {})
    found = post(daemon, sent, headers)
    assert (found[0], found[1]["error"]["code"]) == (status, code)


def test_the_door_is_that_of_all_routes(daemon: RunningDaemon) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        assert post(daemon, body, headers)[0] == 403
    assert post(daemon, body, {"content-type": "text/plain"})[0] == 400
    assert post(daemon, b" " * (1025 << 10))[0] == 400
    assert post(daemon, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
    assert post(daemon, {"jsonrpc": "2.0", "id": 7, "result": {}}) == (202, None)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"{daemon.http}/mcp", timeout=30)


def test_one_caller_cannot_cancel_the_calls_of_another_session(daemon: RunningDaemon) -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    for headers in ({}, {"mcp-session-id": "guessed"}):
        assert post(daemon, cancel, headers) == (202, None)


async def test_a_daemon_that_is_not_there_is_an_error_that_the_agent_can_read(tmp_path: Path) -> None:
    gone = RunningDaemon(f"unix:{tmp_path}/nothing", tmp_path, None, tmp_path, "http://127.0.0.1:9")  # type: ignore[arg-type]
    async with connected(gone, "stdio", MODERN) as client:
        assert len((await client.list_tools()).tools) == 5
        found = await client.call_tool("search", {"query": "grease"})
    assert found.is_error
    assert "Start one with `edge-rag serve`" in found.content[0].text
