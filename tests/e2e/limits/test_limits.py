"""Clients that take more than their part: what they get, and that the others do not notice."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import grpc
import psutil
import pytest

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.server.limits.transport import TransportLimits
from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon, status_of
from tests.support.raw_connection import ASK, RawConnection

QUESTION = "How often must the pump bearings be greased?"
DOCUMENT = {"pump.txt": b"The pump bearings must be greased every 2,000 operating hours. Use lithium grease."}
ENHANCE_YOUR_CALM = 11
ATTACKER = "127.0.0.66"
HASTY = "127.0.0.67"
"""Cancels too many calls."""

MOST_OF_AN_ADDRESS = TransportLimits(connections=0).connections_per_address
LIMITS = """
[limits]
concurrent_calls = 8
connections = 4096
slow_client_seconds = 6
request_seconds = 60
"""


def long_question(request_id: str, tokens: int = 300, characters: int = 1000) -> rag_pb2.AskRequest:
    return rag_pb2.AskRequest(
        question=QUESTION,
        request_id=request_id,
        mode=rag_pb2.ANSWER_MODE_FREE,
        regex=f"[a-z ]{{{characters}}}",
        allow_truncated=True,
        sampling=rag_pb2.Sampling(max_tokens=tokens),
    )


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("limited")
    with start_daemon(folder / "data", folder / "log", LIMITS) as running:
        ingest(running.address, DOCUMENT)
        yield running


@pytest.fixture
def others(limited: RunningDaemon) -> Iterator[None]:
    """Well-behaved clients that ask all the time; each of their answers has to be there and right."""
    done = threading.Event()
    wrong: list[str] = []

    def ask() -> int:
        asked = 0
        with grpc.insecure_channel(limited.address) as channel:
            stub = rag_pb2_grpc.RagStub(channel)
            while not done.is_set():
                responses = list(stub.Ask(rag_pb2.AskRequest(question=QUESTION), timeout=60))
                text = "".join(response.text.text for response in responses)
                if text != "The pump bearings must be greased every 2,000 operating hours.":
                    wrong.append(text)
                asked += 1
        return asked

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            yield
        finally:
            done.set()
    assert all(each.result() for each in asking)
    assert not wrong
    all_places_come_free(limited)


def all_places_come_free(daemon: RunningDaemon) -> None:
    """Waits until one caller gets as many places as it ever does; a call's is given back just after its end."""
    until = time.monotonic() + 30
    with ThreadPoolExecutor(6) as pool, grpc.insecure_channel(daemon.address) as channel:
        stub = rag_pb2_grpc.RagStub(channel)

        def ask(_: int) -> grpc.StatusCode:
            try:
                assert list(stub.Ask(long_question("", 5), timeout=60))
            except grpc.RpcError as error:
                return status_of(error)[0]
            return grpc.StatusCode.OK

        while (codes := set(pool.map(ask, range(6)))) != {grpc.StatusCode.OK}:
            assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert time.monotonic() < until, "places were not given back"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_the_thread_that_takes_calls_goes_before_those_that_compute(limited: RunningDaemon) -> None:
    threads = Path(f"/proc/{limited.process.pid}/task").iterdir()
    # proc_pid_stat(5): the 19th field; the second is a name in parentheses that may hold anything.
    niceness = {int(t.name): int((t / "stat").read_text().rpartition(")")[2].split()[16]) for t in threads}
    own = niceness[limited.process.pid]
    behind = [value for value in niceness.values() if value > own]
    assert len(behind) >= 4, "two stages, the engine, and what the models run on"


def test_what_is_too_much_is_refused_at_once_with_the_time_to_come_back(limited: RunningDaemon) -> None:
    with grpc.insecure_channel(limited.address) as channel:
        stub = rag_pb2_grpc.RagStub(channel)
        calls = [stub.Ask(long_question(f"much-{n}", 60), timeout=60) for n in range(20)]
        codes = []
        for call in calls:
            try:
                assert list(call)[-1].HasField("finished")
                codes.append(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                codes.append(status_of(error)[0])
                trailers = dict(cast(grpc.Call, error).trailing_metadata() or ())
                assert 50 <= int(trailers["grpc-retry-pushback-ms"]) <= 60_000
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert codes.count(grpc.StatusCode.OK) >= 6
    all_places_come_free(limited)


def test_a_call_without_a_deadline_and_one_with_a_long_one_end_at_the_daemons(
    start: Callable[..., RunningDaemon],
) -> None:
    daemon = start(config="[limits]\nrequest_seconds = 0.5")
    ingest(daemon.address, DOCUMENT)
    with grpc.insecure_channel(daemon.address) as channel:
        stub = rag_pb2_grpc.RagStub(channel)
        for timeout in (None, 600):
            with pytest.raises(grpc.RpcError) as ended:
                list(stub.Ask(long_question("", 1500, characters=4000), timeout=timeout))
            assert status_of(ended.value)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    with RawConnection(daemon.address) as silent:
        for path in (ASK, "/grpc.health.v1.Health/Check", "/edge_rag.v1.Documents/StartIngest"):
            stream = silent.read_until_ended(silent.call(path), 30)
            assert stream.headers["grpc-status"] == str(grpc.StatusCode.DEADLINE_EXCEEDED.value[0]), path


@pytest.mark.usefixtures("others")
def test_too_large_messages_and_metadata_are_refused_and_the_connection_goes_on(limited: RunningDaemon) -> None:
    with grpc.insecure_channel(limited.address) as channel:
        stub = rag_pb2_grpc.RagStub(channel)
        for request, metadata in (
            (rag_pb2.AskRequest(question="x" * (1 << 20)), ()),
            (rag_pb2.AskRequest(question=QUESTION), (("note", "x" * 17_000),)),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.Ask(request, timeout=60, metadata=metadata))
            assert status_of(refused.value)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert list(stub.Ask(rag_pb2.AskRequest(question=QUESTION), timeout=60))


@pytest.mark.usefixtures("others")
def test_who_pings_without_end_is_told_to_calm_down_and_cut_off(limited: RunningDaemon) -> None:
    with RawConnection(limited.address, source=ATTACKER) as noisy:
        pings = 0
        while noisy.goodbye is None and not noisy.closed:
            noisy.ping()
            noisy.read(0.05)
            pings += 1
            assert pings < 100
        assert noisy.goodbye == (ENHANCE_YOUR_CALM, "too_many_pings")


@pytest.mark.usefixtures("others")
def test_who_opens_and_resets_streams_without_end_loses_its_connection_and_leaves_nothing_behind(
    limited: RunningDaemon,
) -> None:
    question = rag_pb2.AskRequest(question=QUESTION).SerializeToString()
    before = psutil.Process(limited.process.pid).memory_info().rss
    until = time.monotonic() + 120

    def open_and_reset_until_closed() -> None:
        with RawConnection(limited.address, source=HASTY) as hasty, suppress(ConnectionError):
            while not hasty.closed:
                assert time.monotonic() < until, "the connection was kept"
                for _ in range(100):
                    hasty.reset(hasty.call(ASK, question))
                hasty.read(0.1)

    for _ in range(5):  # this host's addresses are not banned: an operator's commands come from here
        open_and_reset_until_closed()
    with RawConnection(limited.address, source=HASTY) as calm:
        assert answered(calm)
    assert psutil.Process(limited.process.pid).memory_info().rss - before < 64 << 20


@pytest.mark.usefixtures("others")
def test_calls_that_never_send_their_request_take_no_more_than_one_callers_places(limited: RunningDaemon) -> None:
    with RawConnection(limited.address, source=ATTACKER) as holding:
        streams = [holding.streams[holding.call(ASK)] for _ in range(40)]
        while len(refused := [stream for stream in streams if stream.ended]) < 34:
            assert holding.read(20), "nothing came"
        assert {stream.headers["grpc-status"] for stream in refused} == {"8"}
        assert all(int(stream.headers["grpc-retry-pushback-ms"]) >= 50 for stream in refused)


def test_one_address_gets_so_many_connections_and_the_oldest_stay(limited: RunningDaemon) -> None:
    with ExitStack() as opened:

        def connect(count: int, source: str) -> list[RawConnection]:
            return [opened.enter_context(RawConnection(limited.address, source=source)) for _ in range(count)]

        oldest = connect(MOST_OF_AN_ADDRESS, "127.0.0.9")
        assert all(map(answered, oldest))
        # The daemon looks at all of its connections at once: whoever saw one too many here has seen the oldest there.
        elsewhere = connect(MOST_OF_AN_ADDRESS + 1, "127.0.0.10")
        until = time.monotonic() + 30
        while all(map(answered, elsewhere)):
            assert time.monotonic() < until, "no connection was closed"
        for newest in connect(36, "127.0.0.9"):
            while answered(newest):
                assert time.monotonic() < until, "a connection beyond the limit was kept"
        assert all(map(answered, oldest))


def answered(connection: RawConnection) -> bool:
    try:
        stream = connection.call("/edge_rag.v1.Access/WhoAmI", b"")
    except OSError:
        return False
    return connection.read_until_ended(stream, 30).ended


def decisions_of(daemon: RunningDaemon, request_id: str, last: admin_pb2.AuditEventKind.ValueType) -> list[str]:
    kinds = []
    with grpc.insecure_channel(daemon.address) as channel:
        request = admin_pb2.ListAuditEventsRequest(request_id=request_id, follow=True)
        for response in admin_pb2_grpc.AdminStub(channel).ListAuditEvents(request, timeout=60):
            kinds.append(admin_pb2.AuditEventKind.Name(response.event.kind).removeprefix("AUDIT_EVENT_KIND_"))
            if response.event.kind == last:
                return kinds
    raise AssertionError(kinds)


def answer_of(messages: list[bytes]) -> str:
    return "".join(rag_pb2.AskResponse.FromString(message).text.text for message in messages)


@pytest.mark.usefixtures("others")
def test_an_answer_whose_reader_stops_is_paused_and_goes_on_when_it_reads_again(limited: RunningDaemon) -> None:
    with grpc.insecure_channel(limited.address) as channel:
        whole = list(rag_pb2_grpc.RagStub(channel).Ask(long_question("quick"), timeout=60))
    with RawConnection(limited.address, window=200, source=ATTACKER) as slow:
        stream = slow.call(ASK, long_question("slow").SerializeToString())
        decisions_of(limited, "slow", admin_pb2.AUDIT_EVENT_KIND_PAUSED)
        ended = slow.read_until_ended(stream, 60)
    assert ended.headers["grpc-status"] == "0"
    assert answer_of(ended.messages) == "".join(response.text.text for response in whole)
    kinds = decisions_of(limited, "slow", admin_pb2.AUDIT_EVENT_KIND_FINISHED)
    assert kinds.index("PAUSED") < kinds.index("RESUMED")


@pytest.mark.usefixtures("others")
def test_an_answer_that_is_not_read_ends_and_so_does_its_connection(limited: RunningDaemon) -> None:
    with RawConnection(limited.address, window=200, source=ATTACKER) as slow:
        stream = slow.call(ASK, long_question("unread").SerializeToString())
        kinds = decisions_of(limited, "unread", admin_pb2.AUDIT_EVENT_KIND_EXPIRED)
        assert "PAUSED" in kinds
        ended = slow.read_until_ended(stream, 60, reading=False)
        assert slow.closed
        assert not ended.ended


def test_a_reader_that_comes_back_too_late_is_told_why_its_answer_ended(limited: RunningDaemon) -> None:
    with RawConnection(limited.address, window=200, source=ATTACKER) as slow:
        stream = slow.call(ASK, long_question("late").SerializeToString())
        decisions_of(limited, "late", admin_pb2.AUDIT_EVENT_KIND_EXPIRED)
        ended = slow.read_until_ended(stream, 30)
    assert ended.headers["grpc-status"] == str(grpc.StatusCode.ABORTED.value[0])
    assert "the client did not read the stream for 6 s" in ended.headers["grpc-message"]
    assert f"{len(answer_of(ended.messages))} characters of the answer were sent" in ended.headers["grpc-message"]
