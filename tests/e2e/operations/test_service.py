"""A daemon under a service manager: what it says when, what a signal does, and what a kill leaves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from edge_rag.api.v1 import access_pb2, access_pb2_grpc, rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest, status_of
from tests.e2e.support.secured_daemon import edge_rag
from tests.support.old_data import unpack
from tests.support.systemd_socket import Manager, Message, has

WATCHDOG_S = 2.0
DOCUMENT = {"pump.txt": b"The pump bearings must be greased every 2,000 operating hours."}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    there = Manager(tmp_path / "notify")
    yield there
    there.close()


def health(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        return int(reply.status)


class LongAnswer:
    """A question whose answer is long, and what came of it."""

    def __init__(self, stub: rag_pb2_grpc.RagStub, tokens: int) -> None:
        self.began = threading.Event()
        self.text = ""
        self.finished = False
        self._stub = stub
        self._tokens = tokens

    def __call__(self) -> tuple[grpc.StatusCode, str]:
        request = rag_pb2.AskRequest(
            question="What about the pump?",
            mode=rag_pb2.ANSWER_MODE_FREE,
            regex="[a-z ]{1000}",
            allow_truncated=True,
            sampling=rag_pb2.Sampling(max_tokens=self._tokens),
        )
        try:
            for response in self._stub.Ask(request, timeout=300):
                self.text += response.text.text
                self.finished |= response.HasField("finished")
                if self.text:
                    self.began.set()
        except grpc.RpcError as error:
            return status_of(error)
        finally:
            self.began.set()
        return grpc.StatusCode.OK, ""


class Load:
    """Long answers under way, several at a time."""

    def __init__(self, address: str, tokens: int, clients: int = 6) -> None:
        self._channel = grpc.insecure_channel(address)
        self._threads = ThreadPoolExecutor(clients)
        self.answers = [LongAnswer(rag_pb2_grpc.RagStub(self._channel), tokens) for _ in range(clients)]
        self.ends: list[Future[tuple[grpc.StatusCode, str]]] = [self._threads.submit(one) for one in self.answers]

    def begun(self) -> Load:
        assert self.answers[0].began.wait(120)
        return self

    def outcomes(self) -> list[tuple[grpc.StatusCode, str]]:
        ends = [end.result(120) for end in self.ends]
        self._threads.shutdown()
        self._channel.close()
        return ends


@pytest.mark.smoke
def test_ready_comes_once_health_says_serving_and_stopping_before_the_end(
    start: Callable[..., RunningDaemon], manager: Manager, tmp_path: Path
) -> None:
    socket = f"unix:{tmp_path}/socket"

    def watch() -> tuple[list[Message], int]:
        return manager.until(has("READY"), timeout_s=120), health(socket)

    with ThreadPoolExecutor(1) as watcher:
        watched = watcher.submit(watch)
        daemon = start(config=f'local_listen = "{socket}"', environment=manager.environment())
        said, health_at_ready = watched.result(120)
    assert health_at_ready == health_pb2.HealthCheckResponse.SERVING
    assert said[0]["STATUS"].startswith("opening models")
    assert daemon.address in said[-1]["STATUS"]
    assert daemon.stop() == 0
    assert "STOPPING" in manager.next()


def test_a_start_that_fills_full_text_says_how_far_it_is_and_asks_for_time(
    start: Callable[..., RunningDaemon], manager: Manager, tmp_path: Path
) -> None:
    unpack(ROOT / "tests" / "fixtures" / "data-directories" / "schema-11.tar.xz", tmp_path)
    with ThreadPoolExecutor(1) as watcher:
        watched = watcher.submit(manager.until, has("READY"), 120)
        start(tmp_path / "data", models={"embedder": "minilm-l6"}, environment=manager.environment())
        said = watched.result(120)
    filling = [message for message in said if message["STATUS"].startswith("indexing the words of stored documents")]
    assert filling[0]["STATUS"].endswith(": 0 of 1 passages")
    assert filling[-1]["STATUS"].endswith(": 4 of 4 passages")  # of the second collection
    assert all(int(message["EXTEND_TIMEOUT_USEC"]) >= 60_000_000 for message in filling)


def test_the_watchdog_is_fed_while_idle_and_under_load_and_not_by_a_stopped_process(
    start: Callable[..., RunningDaemon], manager: Manager
) -> None:
    daemon = start(environment=manager.environment(WATCHDOG_S))
    manager.until(has("READY"))
    for _ in range(2):
        assert manager.next() == {"WATCHDOG": "1"}

    ingest(daemon.address, DOCUMENT)
    manager.waiting()
    load = Load(daemon.address, tokens=600).begun()
    for _ in range(2):
        assert manager.next() == {"WATCHDOG": "1"}
    assert {code for code, _ in load.outcomes()} == {grpc.StatusCode.OK}

    daemon.process.send_signal(signal.SIGSTOP)
    manager.waiting()
    with pytest.raises(TimeoutError):
        manager.until(has("READY"), timeout_s=WATCHDOG_S)
    daemon.process.send_signal(signal.SIGCONT)
    assert manager.next() == {"WATCHDOG": "1"}


def reread(daemon: RunningDaemon, manager: Manager, config: str) -> Message:
    daemon.log.with_suffix(".toml").write_text(config)
    daemon.process.send_signal(signal.SIGHUP)
    said = manager.until(has("READY"))
    assert any("RELOADING" in message for message in said)
    return said[-1]


def asks(address: str, question: str) -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel:
        try:
            list(rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question=question), timeout=120))
        except grpc.RpcError as error:
            return status_of(error)[0]
    return grpc.StatusCode.OK


@pytest.mark.smoke
def test_sighup_takes_what_can_change_names_what_cannot_and_keeps_all_of_a_broken_file_out(
    start: Callable[..., RunningDaemon], manager: Manager
) -> None:
    daemon = start(config="[limits]\nquestion_characters = 100", environment=manager.environment())
    manager.until(has("READY"))
    ingest(daemon.address, DOCUMENT)
    question = "How often must the pump bearings be greased?"
    assert asks(daemon.address, question) is grpc.StatusCode.OK

    said = reread(daemon, manager, '[limits]\nquestion_characters = 20\n[log]\nlevel = "warning"')
    assert said["STATUS"] == "serving; settings reloaded"
    assert asks(daemon.address, question) is grpc.StatusCode.INVALID_ARGUMENT

    for broken in ("[limits]\nquestion_characters = 0", "[limits", "[limits]\nquestions = 5"):
        assert "old settings" in reread(daemon, manager, broken)["STATUS"]
        assert asks(daemon.address, question) is grpc.StatusCode.INVALID_ARGUMENT

    said = reread(daemon, manager, "threads = 1\n[limits]\nquestion_characters = 200\nconcurrent_calls = 9")
    assert said["STATUS"] == "serving; a restart is needed for threads, limits.concurrent_calls"
    assert asks(daemon.address, question) is grpc.StatusCode.OK
    assert daemon.stop() == 0
    assert "the new settings are invalid; the old ones stay in force" in daemon.log.read_text()


def test_sighup_moves_to_other_certificates_and_tokens(
    start: Callable[..., RunningDaemon], manager: Manager, tmp_path: Path
) -> None:
    token = {}
    for name in ("data", "moved"):
        edge_rag("tls", "init", "--host", "127.0.0.1", data=tmp_path / name)
        token[name] = edge_rag("token", "create", "--name", name, data=tmp_path / name).strip()
    always = "[tls]\nalways = true\n"
    daemon = start(config=always, environment=manager.environment())
    manager.until(has("READY"))

    def who(authority: str, shown: str) -> str:
        trusted = grpc.ssl_channel_credentials((tmp_path / authority / "tls" / "ca.pem").read_bytes())
        credentials = grpc.composite_channel_credentials(trusted, grpc.access_token_call_credentials(token[shown]))
        with grpc.secure_channel(daemon.address, credentials) as channel:
            try:
                return str(access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest(), timeout=30).name)
            except grpc.RpcError as error:
                return status_of(error)[0].name

    assert who("data", "data") == "data"
    moved = tmp_path / "moved"
    paths = f'certificate = "{moved}/tls/server.pem"\nkey = "{moved}/tls/server.key"\n'
    access = f'[access]\ntokens = "{moved}/access/tokens.json"\n'

    said = reread(daemon, manager, always + paths.replace("server.key", "none.key") + access)
    assert "none.key" in said["STATUS"]
    assert who("data", "data") == "data"

    reread(daemon, manager, always + paths + access)
    assert who("moved", "moved") == "moved"
    assert who("moved", "data") == "UNAUTHENTICATED"
    assert who("data", "moved") == "UNAVAILABLE"


def test_sigterm_lets_answers_finish_that_do_so_within_the_grace_time(
    start: Callable[..., RunningDaemon], manager: Manager
) -> None:
    daemon = start(config="[limits]\ndrain_seconds = 120", environment=manager.environment())
    manager.until(has("READY"))
    ingest(daemon.address, DOCUMENT)
    load = Load(daemon.address, tokens=150, clients=3)
    for answer in load.answers:
        assert answer.began.wait(120)
    daemon.process.send_signal(signal.SIGTERM)
    assert "STOPPING" in manager.until(has("STOPPING"))[-1]
    assert {code for code, _ in load.outcomes()} == {grpc.StatusCode.OK}
    assert all(answer.finished for answer in load.answers)
    assert daemon.process.wait(60) == 0


def test_sigterm_ends_longer_answers_with_unavailable_and_says_how_far_they_came(
    start: Callable[..., RunningDaemon], manager: Manager
) -> None:
    daemon = start(config="[limits]\ndrain_seconds = 0.2", environment=manager.environment())
    manager.until(has("READY"))
    ingest(daemon.address, DOCUMENT)
    load = Load(daemon.address, tokens=1500).begun()
    daemon.process.send_signal(signal.SIGTERM)
    ends = load.outcomes()
    assert daemon.process.wait(60) == 0
    assert {code for code, _ in ends} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    cut = [
        (answer, message) for answer, (code, message) in zip(load.answers, ends, strict=True) if "shutting" in message
    ]
    assert cut, "no answer was under way when the grace time was over"
    for answer, message in cut:
        assert not answer.finished
        assert f"{len(answer.text)} characters of the answer were sent" in message
    assert "STOPPING" in manager.until(has("STOPPING"))[-1]


def test_a_certificate_that_the_manager_passes_serves_tls(
    start: Callable[..., RunningDaemon], manager: Manager, tmp_path: Path
) -> None:
    passed = tmp_path / "credentials"
    passed.mkdir()
    edge_rag("tls", "init", "--host", "127.0.0.1", data=tmp_path / "authority")
    token = edge_rag("token", "create", "--name", "ward-3", data=tmp_path / "data").strip()
    for name, file in (("certificate", "server.pem"), ("key", "server.key")):
        (passed / f"edge-rag.{name}").write_bytes((tmp_path / "authority" / "tls" / file).read_bytes())
    daemon = start(config="[tls]\nalways = true\n", environment={"CREDENTIALS_DIRECTORY": str(passed)})
    trusted = grpc.ssl_channel_credentials((tmp_path / "authority" / "tls" / "ca.pem").read_bytes())
    credentials = grpc.composite_channel_credentials(trusted, grpc.access_token_call_credentials(token))
    with grpc.secure_channel(daemon.address, credentials) as channel:
        assert access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest(), timeout=30).name == "ward-3"
