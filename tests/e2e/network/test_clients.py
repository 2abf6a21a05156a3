import ast
import asyncio
import doctest
import inspect
import io
import textwrap
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from edge_rag.client import (
    AskOptions,
    AsyncClient,
    Client,
    OutgoingDocument,
    SearchOptions,
    TextDelta,
)
from edge_rag.core.documents.collection import BackendKind, CollectionSettings
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.query import AnswerMode
from tests.contract.both_clients import Connect, connecting
from tests.e2e.support.running_daemon import ROOT, RunningDaemon

CALLS = sorted(name for name in dir(Client) if not name.startswith("_") and name != "close")


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with connecting(request.param == "asyncio") as opener:
        yield opener


def test_closing_an_answer_early_frees_its_slot(daemon: RunningDaemon, connect: Connect) -> None:
    request_id = f"left-{connect is Client}"
    long = AskOptions(mode=AnswerMode.FREE, regex="[a-z ]{4000}", max_tokens=1000, request_id=request_id)
    with connect(daemon.address, timeout_s=120) as client:
        events = client.ask("What is the rated flow of the pump?", long)
        for event in events:
            if isinstance(event, TextDelta):
                break
        events.close()
        for entry in client.audit_events(request_id, follow=True):
            assert isinstance(entry, AuditEntry)
            assert entry.event.kind is not AuditEventKind.FINISHED
            if entry.event.kind is AuditEventKind.CANCELLED:
                break
        assert client.status().engine.slots_busy == 0


def code(documentation: str | None) -> str:
    examples = doctest.DocTestParser().get_examples(textwrap.dedent(documentation or ""))
    return "".join(example.source for example in examples)


EXAMPLES = (
    *(
        "wait_until_serving",
        "whoami",
        "status",
        "watch_status",
        "usage",
        "audit_events",
        "backup",
        "use_model",
        "move_index",
    ),
    *("create_collection", "update_collection", "collection", "collections", "delete_collection"),
    *("ingest", "document", "documents", "document_page", "search", "ask", "conversation", "delete"),
    *("start_ingest", "jobs", "watch_job", "cancel_job"),
)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_example_in_the_documentation_of_the_calls_runs(
    daemon: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Client] | type[AsyncClient]
) -> None:
    assert sorted(EXAMPLES) == CALLS
    (tmp_path / "manuals").mkdir()
    (tmp_path / "manuals" / "valve.md").write_text("# Valve\n\nThe relief valve opens at 6 bar.\n")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        found.__name__: found
        for found in (AskOptions, CollectionSettings, BackendKind, OutgoingDocument, Path, SearchOptions, TextDelta)
    }

    async def run_all() -> None:
        async with AsyncClient(daemon.address, timeout_s=120) as asynchronous:
            with Client(daemon.address, timeout_s=120) as blocking:
                client = blocking if kind is Client else asynchronous
                for name in EXAMPLES:
                    compiled = compile(code(getattr(kind, name).__doc__), name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                    begun = eval(compiled, names | {"client": client, "io": io})
                    if inspect.iscoroutine(begun):
                        await begun

    asyncio.run(run_all())
    with Client(daemon.address, timeout_s=120) as client:
        assert [info.name for info in client.documents()].count("valve.md") == 1
        client.delete("valve.md")


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_the_examples_of_the_clients_run(
    daemon: RunningDaemon,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    client: type[Client] | type[AsyncClient],
) -> None:
    monkeypatch.setenv("EDGE_RAG_SERVER", daemon.address)
    run(code(client.__doc__), {"Client": Client, "AsyncClient": AsyncClient, "aclosing": aclosing, "closing": closing})
    assert "bearing" in capsys.readouterr().out


def programs(document: Path) -> list[str]:
    found = [block.removeprefix("python\n") for block in document.read_text().split("```") if block[:7] == "python\n"]
    return [program for program in found if "edge_rag" in program]


@pytest.mark.parametrize("program", [*programs(ROOT / "README.md"), *programs(ROOT / "docs" / "guide" / "api.md")])
def test_the_programs_in_the_documentation_run(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    monkeypatch.setenv("EDGE_RAG_SERVER", daemon.address)
    run(program, {})
    printed = capsys.readouterr().out
    assert "2,000 operating hours" in printed


def run(program: str, names: dict[str, Any]) -> None:
    compiled = compile(program, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    begun = eval(compiled, names)
    if inspect.iscoroutine(begun):
        asyncio.run(begun)
