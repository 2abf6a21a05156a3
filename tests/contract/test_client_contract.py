"""The contract of both clients, against a scripted server."""

import io
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from edge_rag.api.v1 import admin_pb2, common_pb2, documents_pb2, rag_pb2
from edge_rag.client import (
    AskEvent,
    AskOptions,
    CallStatus,
    ClientError,
    CollectionSettings,
    InvalidArgument,
    PassagesReceived,
    RetryPolicy,
    SearchOptions,
    parse_filter,
)
from edge_rag.core.answer import Finished, TextDelta
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.query import AnswerMode, Priority
from tests.contract.both_clients import Connect, connecting
from tests.unit.cli.scripted_daemon import ScriptedDaemon, answering, finished, refusing


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with connecting(request.param == "asyncio") as opener:
        yield opener


PUSHBACK = (("grpc-retry-pushback-ms", "1"),)


def found(_: Any, __: Any) -> rag_pb2.SearchResponse:
    return rag_pb2.SearchResponse(hits=[common_pb2.Passage(document="a.md", start=1, end=4, text="abc", score=2.5)])


def test_a_call_that_a_full_queue_refused_is_repeated_after_its_delay(
    connect: Connect, scripted: ScriptedDaemon
) -> None:
    scripted.script("Search", refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=PUSHBACK), found)
    with connect(scripted.address) as client:
        assert [hit.document for hit in client.search("oil").hits] == ["a.md"]
    assert scripted.calls["Search"] == 2


@pytest.mark.parametrize("trailers", [(), (("grpc-retry-pushback-ms", "-1"),), (("grpc-retry-pushback-ms", "soon"),)])
def test_a_refusal_without_a_delay_is_final(
    connect: Connect, scripted: ScriptedDaemon, trailers: tuple[tuple[str, str], ...]
) -> None:
    scripted.script("Search", refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "disk full", trailers), found)
    with connect(scripted.address) as client, pytest.raises(ClientError, match="disk full") as caught:
        client.search("oil")
    assert caught.value.status is CallStatus.RESOURCE_EXHAUSTED
    assert scripted.calls["Search"] == 1


@pytest.mark.parametrize("pushback", ["-1", "soon"])
def test_a_call_is_not_repeated_if_the_daemon_asks_for_that(
    connect: Connect, scripted: ScriptedDaemon, pushback: str
) -> None:
    trailers = (("grpc-retry-pushback-ms", pushback),)
    scripted.script("Search", refusing(grpc.StatusCode.UNAVAILABLE, "shutting down", trailers), found)
    scripted.script("WatchJob", refusing(grpc.StatusCode.UNAVAILABLE, "shutting down", trailers))
    with connect(scripted.address) as client:
        for call in (lambda: client.search("oil"), lambda: list(client.watch_job("1"))):
            with pytest.raises(ClientError, match="shutting down"):
                call()
    assert scripted.calls == {"Search": 1, "WatchJob": 1}


def test_closing_the_client_ends_its_calls_as_cancelled(connect: Connect, scripted: ScriptedDaemon) -> None:
    begun, release = threading.Barrier(3), threading.Event()
    errors: list[ClientError] = []

    def slow(_: Any, __: Any) -> rag_pb2.SearchResponse:
        begun.wait(30)
        release.wait(30)
        return rag_pb2.SearchResponse()

    def slow_answer(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        begun.wait(30)
        release.wait(30)
        yield finished()

    scripted.script("Search", slow)
    scripted.script("Ask", slow_answer)
    client = connect(scripted.address)

    def failing(call: Callable[[], object]) -> None:
        with pytest.raises(ClientError) as caught:
            call()
        errors.append(caught.value)

    calls = [lambda: client.search("oil"), lambda: list(client.ask("how?"))]
    threads = [threading.Thread(target=failing, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    begun.wait(30)
    client.__exit__(None, None, None)
    for thread in threads:
        thread.join(30)
    release.set()
    assert [error.status for error in errors] == [CallStatus.CANCELLED] * 2


def test_a_call_to_a_daemon_that_is_starting_is_repeated(connect: Connect, scripted: ScriptedDaemon) -> None:
    scripted.script("Search", refusing(grpc.StatusCode.UNAVAILABLE, "starting"), found)
    with connect(scripted.address, retry=RetryPolicy(first_delay_s=0.001)) as client:
        assert len(client.search("oil").hits) == 1


def test_the_error_without_a_daemon_names_the_command_that_starts_one(connect: Connect, tmp_path: Path) -> None:
    with (
        connect(f"unix:{tmp_path / 'none.sock'}") as client,
        pytest.raises(ClientError, match="edge-rag serve") as caught,
    ):
        client.search("oil")
    assert caught.value.status is CallStatus.UNAVAILABLE
    assert not caught.value.connected


def test_the_timeout_bounds_the_call(connect: Connect, scripted: ScriptedDaemon) -> None:
    release = threading.Event()

    def slow(_: Any, __: Any) -> rag_pb2.SearchResponse:
        release.wait(30)
        return rag_pb2.SearchResponse()

    scripted.script("Search", slow)
    with connect(scripted.address, timeout_s=0.05) as client, pytest.raises(ClientError, match="--timeout") as caught:
        client.search("oil")
    release.set()
    assert caught.value.status is CallStatus.DEADLINE_EXCEEDED


def test_an_answer_comes_as_values_in_order(connect: Connect, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("ab"))
    with connect(scripted.address) as client:
        kinds = [type(event).__name__ for event in client.ask("how?")]
    assert kinds == ["PassagesReceived", "TextDelta", "TextDelta", "Citation", "Finished"]


def test_every_option_reaches_the_server(connect: Connect, scripted: ScriptedDaemon) -> None:
    requests: list[rag_pb2.AskRequest] = []

    def record(request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        requests.append(request)
        yield finished()

    scripted.script("Ask", record)
    options = AskOptions(
        collection="boiler",
        mode=AnswerMode.FREE,
        max_sentences=3,
        passages=5,
        max_tokens=64,
        temperature=0.5,
        top_k=40,
        top_p=0.75,
        repetition_penalty=1.25,
        seed=7,
        stop=("END",),
        priority=Priority.BATCH,
    )
    with connect(scripted.address) as client:
        list(client.ask("how?", options))
        list(client.ask("how?"))
        list(client.ask("how?", AskOptions(json_schema="{}")))
        list(client.ask("how?", AskOptions(regex="a", mode=AnswerMode.QUOTE)))
    assert requests[0] == rag_pb2.AskRequest(
        question="how?",
        collection="boiler",
        mode=rag_pb2.ANSWER_MODE_FREE,
        max_sentences=3,
        passages=5,
        sampling=rag_pb2.Sampling(
            max_tokens=64, temperature=0.5, top_k=40, top_p=0.75, repetition_penalty=1.25, seed=7, stop=["END"]
        ),
        priority=rag_pb2.PRIORITY_BATCH,
    )
    plain = rag_pb2.AskRequest(question="how?", collection="default", sampling=rag_pb2.Sampling())
    assert requests[1] == plain
    with_schema = rag_pb2.AskRequest(mode=rag_pb2.ANSWER_MODE_FREE, json_schema="{}")
    with_schema.MergeFrom(plain)
    assert requests[2] == with_schema
    with_regex = rag_pb2.AskRequest(mode=rag_pb2.ANSWER_MODE_QUOTE, regex="a")
    with_regex.MergeFrom(plain)
    assert requests[3] == with_regex


def test_two_formats_at_once_are_refused_without_a_call(connect: Connect, scripted: ScriptedDaemon) -> None:
    with connect(scripted.address) as client, pytest.raises(ClientError, match="leave one out"):
        list(client.ask("how?", AskOptions(json_schema="{}", regex="a")))


def test_an_answer_that_breaks_off_is_an_error_after_its_events(connect: Connect, scripted: ScriptedDaemon) -> None:
    def broken(_: Any, context: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages())
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Every"))
        context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")

    scripted.script("Ask", broken)
    events: list[AskEvent] = []
    with connect(scripted.address) as client, pytest.raises(ClientError, match="shutting down"):
        events.extend(client.ask("how?"))
    assert events == [PassagesReceived(()), TextDelta("Every")]
    assert scripted.calls["Ask"] == 1


def test_an_answer_without_its_last_message_is_an_error(connect: Connect, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", lambda _, __: iter([rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Every"))]))
    with connect(scripted.address) as client, pytest.raises(ClientError, match="without its last message"):
        list(client.ask("how?"))


def test_an_event_of_a_newer_server_is_skipped(connect: Connect, scripted: ScriptedDaemon) -> None:
    later = rag_pb2.AskResponse()
    scripted.script("Ask", lambda _, __: iter([later, finished(), later]))
    with connect(scripted.address) as client:
        assert [type(event) for event in client.ask("how?")] == [Finished]


def test_leaving_an_answer_early_cancels_the_call(connect: Connect, scripted: ScriptedDaemon) -> None:
    cancelled = threading.Event()

    def endless(_: Any, context: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
        context.add_callback(cancelled.set)
        while context.is_active():
            yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="on "))

    scripted.script("Ask", endless)
    with connect(scripted.address) as client:
        events = cast(Any, client.ask("how?"))
        next(events)
        events.close()
        assert cancelled.wait(10)


@pytest.mark.parametrize(
    ("question", "problem"),
    [("why " * 2_621_440, "10,485,760 characters are too many"), ("w\udcffhy", "not valid UTF-8")],
)
def test_a_question_that_cannot_be_sent_is_refused_before_it_is_sent(
    connect: Connect, scripted: ScriptedDaemon, question: str, problem: str
) -> None:
    with connect(scripted.address) as client:
        for call in (lambda: list(client.ask(question)), lambda: client.search(question, SearchOptions())):
            with pytest.raises(ClientError, match=problem) as caught:
                call()
            assert caught.value.status is CallStatus.INVALID_ARGUMENT
    assert not scripted.calls


def test_arguments_that_cannot_be_sent_are_refused_before_they_are_sent(
    connect: Connect, scripted: ScriptedDaemon
) -> None:
    deep = parse_filter("not " * 16 + "a = 1")
    with connect(scripted.address) as client:
        for call, problem in (
            (lambda: client.search("oil", SearchOptions(filter=deep)), "deeper than 16"),
            (lambda: list(client.ask("how?", AskOptions(filter=deep))), "deeper than 16"),
            (lambda: client.ingest("a\udcff", lambda: io.BytesIO(b"")), "not valid UTF-8"),
            (lambda: client.ingest("a", lambda: io.BytesIO(b""), metadata={"No key": 1}), "a key is 1 to 64"),
            (lambda: client.create_collection("a", CollectionSettings(description="\udcff")), "not valid UTF-8"),
        ):
            with pytest.raises(InvalidArgument, match=problem):
                call()
    assert not scripted.calls.keys() - {"Ingest"}


def test_a_document_is_sent_in_pieces_and_its_outcome_comes_back(connect: Connect, scripted: ScriptedDaemon) -> None:
    content = bytes(range(256)) * 5000
    received: list[documents_pb2.IngestRequest] = []

    def take(parts: Iterator[documents_pb2.IngestRequest], _: Any) -> documents_pb2.IngestResponse:
        received.extend(parts)
        outcome = documents_pb2.IngestResponse.Outcome(
            name="a.md",
            status=documents_pb2.INGEST_STATUS_ADDED,
            document=documents_pb2.Document(name="a.md", chunks=4),
        )
        return documents_pb2.IngestResponse(outcomes=[outcome])

    scripted.script("Ingest", take)
    with connect(scripted.address) as client:
        outcome = client.ingest("a.md", lambda: io.BytesIO(content), collection="boiler")
    assert outcome.status is IngestStatus.ADDED
    assert outcome.document is not None
    assert outcome.document.chunks == 4
    assert (received[0].header.name, received[0].header.collection) == ("a.md", "boiler")
    assert b"".join(part.content for part in received[1:]) == content
    assert max(len(part.content) for part in received) <= 1 << 20


class BreakingFile(io.BytesIO):
    """Gives one piece and then, once the server has it, an error or an early end."""

    def __init__(self, content: bytes, arrived: threading.Event, error: OSError | None) -> None:
        super().__init__(content)
        self._arrived = arrived
        self._error = error

    def read(self, size: int | None = -1, /) -> bytes:
        if not self.tell():
            return super().read(size)
        self._arrived.wait(30)
        if self._error is not None:
            raise self._error
        return b""


@pytest.mark.parametrize(
    ("error", "problem"),
    [(OSError(5, "Input/output error"), "Input/output error"), (None, "became shorter while it was read")],
)
def test_a_file_that_fails_while_it_is_read_is_never_accepted_as_complete(
    connect: Connect, scripted: ScriptedDaemon, error: OSError | None, problem: str
) -> None:
    arrived, ended = threading.Event(), threading.Event()
    announced = received = 0

    def take(parts: Iterator[documents_pb2.IngestRequest], _: Any) -> documents_pb2.IngestResponse:
        nonlocal announced, received
        try:
            for part in parts:
                announced = max(announced, part.header.size_bytes)
                received += len(part.content)
                if received:
                    arrived.set()
        finally:
            ended.set()
        return documents_pb2.IngestResponse()

    scripted.script("Ingest", take)
    with connect(scripted.address) as client:
        with pytest.raises(OSError, match=problem):
            client.ingest("a.md", lambda: BreakingFile(bytes(1 << 20), arrived, error))
        assert ended.wait(10)
    assert 0 < received < announced == 1 << 20


class GrowingFile(io.BytesIO):
    _at = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.seek(0, io.SEEK_END)
        self.write(b"a line more")
        self.seek(self._at)
        piece = super().read(size)
        self._at = self.tell()
        return piece


def test_a_file_that_grows_during_the_upload_is_sent_as_it_was(connect: Connect, scripted: ScriptedDaemon) -> None:
    received: list[documents_pb2.IngestRequest] = []

    def take(parts: Iterator[documents_pb2.IngestRequest], _: Any) -> documents_pb2.IngestResponse:
        received.extend(parts)
        return documents_pb2.IngestResponse(
            outcomes=[documents_pb2.IngestResponse.Outcome(name="a.md", status=documents_pb2.INGEST_STATUS_ADDED)]
        )

    scripted.script("Ingest", take)
    with connect(scripted.address) as client:
        client.ingest("a.md", lambda: GrowingFile(bytes(600_000)))
    assert received[0].header.size_bytes == 600_000
    assert b"".join(part.content for part in received[1:]) == bytes(600_000)


def test_a_listing_follows_its_page_tokens(connect: Connect, scripted: ScriptedDaemon) -> None:
    pages = {"": (["a", "b"], "more"), "more": (["c"], "")}

    def page(request: documents_pb2.ListDocumentsRequest, _: Any) -> documents_pb2.ListDocumentsResponse:
        names, token = pages[request.page_token]
        return documents_pb2.ListDocumentsResponse(
            documents=[documents_pb2.Document(name=name) for name in names], next_page_token=token
        )

    scripted.script("List", page)
    with connect(scripted.address) as client:
        assert [info.name for info in client.documents()] == ["a", "b", "c"]


class StoredText:
    """Answers ``Get`` with ranges of a text that end after ten characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.version = "first"
        self.ranges: list[tuple[int, int | None]] = []

    def __call__(self, request: documents_pb2.GetDocumentRequest, _: Any) -> documents_pb2.GetDocumentResponse:
        end = request.end if request.HasField("end") else None
        self.ranges.append((request.start, end))
        part = self.text[request.start : end][:10]
        document = documents_pb2.Document(name="a.md", sha256=self.version, characters=len(self.text))
        return documents_pb2.GetDocumentResponse(document=document, text=part, end=request.start + len(part))


def test_a_long_text_comes_in_ranges(connect: Connect, scripted: ScriptedDaemon) -> None:
    stored = StoredText("".join(map(str, range(20))))
    scripted.script("Get", *[stored] * 5)
    with connect(scripted.address) as client:
        assert client.document("a.md").text == stored.text
        assert client.document("a.md", start=3, end=8).text == stored.text[3:8]
        assert client.document("a.md", start=3, end=0).info.characters == len(stored.text)
    assert stored.ranges == [(0, None), (10, None), (20, None), (3, 8), (3, 0)]


def test_a_text_that_is_replaced_while_it_is_read_is_read_anew(connect: Connect, scripted: ScriptedDaemon) -> None:
    stored = StoredText("the old text of it")

    def replaced(request: documents_pb2.GetDocumentRequest, context: Any) -> documents_pb2.GetDocumentResponse:
        stored.text, stored.version = "the new text of it", "second"
        return stored(request, context)

    scripted.script("Get", stored, replaced, stored, stored)
    with connect(scripted.address) as client:
        document = client.document("a.md")
    assert (document.text, document.info.sha256) == ("the new text of it", "second")


def test_a_whole_text_of_an_older_daemon_is_cut_to_the_range(connect: Connect, scripted: ScriptedDaemon) -> None:
    whole = documents_pb2.GetDocumentResponse(document=documents_pb2.Document(characters=9), text="older one")
    scripted.script("Get", *[lambda _, __: whole] * 2)
    with connect(scripted.address) as client:
        assert client.document("a.md").text == "older one"
        assert client.document("a.md", start=6, end=8).text == "on"


def test_a_negative_range_is_refused_without_a_call(connect: Connect, scripted: ScriptedDaemon) -> None:
    with connect(scripted.address) as client, pytest.raises(InvalidArgument, match="start"):
        client.document("a.md", start=-1)


def test_waiting_ends_when_the_health_service_reports_serving(connect: Connect, scripted: ScriptedDaemon) -> None:
    scripted.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    with connect(scripted.address) as client:
        with pytest.raises(ClientError, match="not serving") as caught:
            client.wait_until_serving(0.2)
        assert caught.value.status is CallStatus.DEADLINE_EXCEEDED
        scripted.health.set("", health_pb2.HealthCheckResponse.SERVING)
        client.wait_until_serving(30)


def test_a_daemon_that_is_not_there_yet_is_waited_for(
    connect: Connect, tmp_path: Path, start_server: Callable[[ScriptedDaemon, str], None]
) -> None:
    address = f"unix:{tmp_path / 'daemon.sock'}"
    daemon = ScriptedDaemon()
    with connect(address) as client:
        with pytest.raises(ClientError, match="no daemon answers"):
            client.wait_until_serving(0.1)
        waiting = threading.Thread(target=client.wait_until_serving, args=(30,))
        waiting.start()
        start_server(daemon, address)
        waiting.join(30)
        assert not waiting.is_alive()


def test_a_backup_is_complete_only_when_its_call_ends_well(connect: Connect, scripted: ScriptedDaemon) -> None:
    content = b"half a kilobyte" * 34
    summary = admin_pb2.BackupResponse.Summary(size_bytes=len(content), sha256=sha256(content).hexdigest())
    replies = [admin_pb2.BackupResponse(content=content), admin_pb2.BackupResponse(summary=summary)]

    def failing_late(_: Any, context: grpc.ServicerContext) -> Iterator[admin_pb2.BackupResponse]:
        yield from replies
        context.abort(grpc.StatusCode.DATA_LOSS, "the copy is damaged")

    scripted.script("Backup", lambda _, __: iter(replies), failing_late)
    with connect(scripted.address) as client:
        target = io.BytesIO()
        assert client.backup(target) == len(content)
        assert target.getvalue() == content
        with pytest.raises(ClientError, match="the copy is damaged"):
            client.backup(io.BytesIO())


@pytest.mark.parametrize("address", ["localhost", "nowhere:", ":7421", "http://box:7421", "box:port", "two words:1"])
def test_an_address_of_an_unknown_form_is_refused(connect: Connect, address: str) -> None:
    with pytest.raises(ClientError, match="neither HOST:PORT nor unix:PATH"):
        connect(address)


def test_the_address_comes_from_the_environment_when_none_is_given(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGE_RAG_SERVER", raising=False)
    assert connect().address == "127.0.0.1:7421"
    monkeypatch.setenv("EDGE_RAG_SERVER", "[::1]:7500")
    assert connect().address == "[::1]:7500"
    assert connect("box:1").address == "box:1"
