import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from edge_rag.access.certificates import CertificateFolder
from edge_rag.access.pairing_file import MAX_TRIES, PairingFile, pairing
from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from edge_rag.cli.main import main
from edge_rag.client.credentials import KnownServers
from edge_rag.client.errors import CallStatus, ClientError
from edge_rag.client.pairing import pair
from edge_rag.config.paths import pairing_path
from edge_rag.core.identity import Identity, Role
from edge_rag.core.pairing_code import SYMBOLS, PairingCode
from edge_rag.discovery import browser
from edge_rag.discovery.announcer import FoundServer
from edge_rag.service.authentication import LOCAL_PAIRING_QUOTA
from tests.e2e.support.interceptor import Interceptor
from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon, status_of

TLS = "[tls]\nalways = true\n[discovery]\nname = 'engine-room'\n"
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Box:
    running: RunningDaemon
    data: Path

    def code(self, name: str, *options: str) -> PairingCode:
        made = on_box("pair", "--name", name, "--json", *options, data=self.data)
        return PairingCode.parse(json.loads(made.stdout)["code"])

    def stranger(self, token: str | None = None) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials((self.data / "tls" / "ca.pem").read_bytes())
        if token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
        return grpc.secure_channel(self.running.address, credentials)

    def redeem(self, key: str, secret: str) -> access_pb2.PairResponse:
        with self.stranger() as channel:
            request = access_pb2.PairRequest(key=key, secret=secret)
            return access_pb2_grpc.AccessStub(channel).Pair(request, timeout=TIMEOUT_S)

    def refusal(self, key: str, secret: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as refused:
            self.redeem(key, secret)
        return status_of(refused.value)


def on_box(*arguments: str, data: Path) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--data-dir", str(data)])
    assert result.exit_code == 0, result.output
    return result


def wrong(text: str) -> str:
    return text[:-1] + SYMBOLS[(SYMBOLS.index(text[-1]) + 1) % len(SYMBOLS)]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("box")
    data = folder / "data"
    on_box("tls", "init", "--host", "127.0.0.1", data=data)
    on_box("pair", "--name", "the-first", data=data)  # and no token yet
    with start_daemon(data, folder / "log", f'local_listen = "unix:{folder}/socket"\n{TLS}') as running:
        ingest(f"unix:{folder}/socket", {"galley.txt": b"The galley opens at six in the morning."}, "a")
        yield Box(running, data)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes this process another machine: one with credentials of its own; returns where it keeps them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    return tmp_path / "elsewhere" / "edge-rag" / "servers.json"


@pytest.mark.smoke
def test_a_machine_with_a_code_is_known_from_then_on(box: Box, elsewhere: Path) -> None:
    rights = ["--roles", "reader", "--collections", "a", "--priority-max", "batch", "--quota", "60 requests/min"]
    made = json.loads(on_box("pair", "--name", "ward-3", *rights, "--days", "7", "--json", data=box.data).stdout)
    connected = CliRunner().invoke(main, ["connect", box.running.address, "--code", made["code"].lower(), "--json"])
    assert connected.exit_code == 0, connected.output
    expected: dict[str, object] = {"server": box.running.address, "box": "engine-room", "name": "ward-3"}
    expected |= {"roles": ["reader"], "collections": ["a"]}
    assert json.loads(connected.stdout) == expected
    assert elsewhere.stat().st_mode & 0o777 == 0o600
    assert elsewhere.parent.stat().st_mode & 0o777 == 0o700
    search = ["search", "--server", box.running.address, "--collection", "a", "--json", "When does the galley open?"]
    found = CliRunner().invoke(main, search)
    assert "six in the morning" in found.stdout, found.output
    listed = json.loads(on_box("token", "list", "--json", data=box.data).stdout)["tokens"]
    (ward,) = (known for known in listed if known["name"] == "ward-3")
    assert (ward["collections"], ward["priority_max"], ward["requests_per_minute"]) == (["a"], "batch", 60)
    assert timedelta(days=6) < datetime.fromisoformat(ward["expires"]) - datetime.now(UTC) < timedelta(days=7)


def test_the_only_collection_of_a_token_is_that_of_commands_that_are_given_none(
    box: Box, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_RAG_SERVER", box.running.address)
    made = on_box("pair", "--name", "ward-5", "--roles", "reader,writer", "--collections", "a", data=box.data)
    connected = CliRunner().invoke(main, ["connect", box.running.address, "--code", made.stdout.strip()])
    assert "its collection a" in connected.stderr, connected.output
    (tmp_path / "note.txt").write_text("The bilge pump is tested on Mondays.")
    assert CliRunner().invoke(main, ["ingest", str(tmp_path / "note.txt")]).exit_code == 0
    for command in ("search", "ask"):
        found = CliRunner().invoke(main, [command, "When is the bilge pump tested?"])
        assert "on Mondays" in found.stdout, found.output
    other = CliRunner().invoke(main, ["search", "--collection", "b", "bilge pump"])
    assert (other.exit_code, "you may use: a" in other.stderr) == (4, True), other.output
    monkeypatch.setenv("EDGE_RAG_COLLECTION", "b")
    assert CliRunner().invoke(main, ["search", "bilge pump"]).exit_code == 4


def test_the_link_of_the_qr_code_is_all_that_connect_needs(box: Box, elsewhere: Path) -> None:
    shown = on_box("pair", "--name", "ward-4", "--address", box.running.address, "--qr", data=box.data)
    assert re.search("[▀▄█]{20}", shown.stderr)
    link = f"edge-rag://{box.running.address}/{shown.stdout.strip()}"
    connected = CliRunner().invoke(main, ["connect", link])
    assert connected.exit_code == 0, connected.output
    assert "ward-4" in connected.stderr


def test_wrong_used_unknown_and_expired_codes_are_refused_alike(box: Box) -> None:
    used, other = box.code("used"), box.code("other")
    box.redeem(used.key, used.secret)
    over = PairingCode.make(bytes(32))
    begun = datetime.now(UTC) - timedelta(minutes=11)
    end = begun + timedelta(minutes=10)
    file = PairingFile(pairing_path(box.data), lambda: begun)
    file.add(pairing(over, Identity("over", frozenset({Role.READER})), None, begun, end))
    shown = [
        (other.key, wrong(other.secret)),
        (other.key, "0" * 12),
        (used.key, used.secret),
        (wrong(other.key), other.secret),
        (over.key, over.secret),
    ]
    assert len({box.refusal(key, secret) for key, secret in shown}) == 1


def test_a_mistyped_code_costs_no_try_and_is_shown_to_nobody(box: Box, elsewhere: Path) -> None:
    code = box.code("mistyped")
    result = CliRunner().invoke(main, ["connect", "127.0.0.1:1", "--code", wrong(code.text())])
    assert result.exit_code == 2
    assert "mistyped" in result.stderr
    (known,) = (one for one in PairingFile(pairing_path(box.data)).open_pairings() if one.key == code.key)
    assert known.wrong_tries == 0


def test_without_tls_no_code_is_taken(box: Box) -> None:
    code = box.code("plain")
    (local,) = re.findall(r"unix:\S+socket", box.running.log.read_text())[:1]
    with grpc.insecure_channel(local) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            access_pb2_grpc.AccessStub(channel).Pair(access_pb2.PairRequest(key=code.key, secret=code.secret))
    assert status_of(refused.value)[0] is grpc.StatusCode.PERMISSION_DENIED
    assert box.redeem(code.key, code.secret).name == "plain"


def test_a_name_that_has_a_token_gets_no_code(box: Box) -> None:
    on_box("token", "create", "--name", "taken", data=box.data)
    result = CliRunner().invoke(main, ["pair", "--name", "taken", "--data-dir", str(box.data)])
    assert result.exit_code == 1
    assert "revoke it first" in result.stderr


def test_a_code_and_what_is_known_of_its_tries_outlast_a_restart(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    on_box("tls", "init", "--host", "127.0.0.1", data=data)
    on_box("token", "create", "--name", "somebody", data=data)
    first = Box(start(config=TLS), data)
    good, guessed = first.code("good"), first.code("guessed")
    for _ in range(MAX_TRIES - 1):
        first.refusal(guessed.key, wrong(guessed.secret))
    assert first.running.stop() == 0
    second = Box(start(config=TLS), data)
    second.refusal(guessed.key, wrong(guessed.secret))
    assert second.refusal(guessed.key, guessed.secret)[0] is grpc.StatusCode.UNAUTHENTICATED
    assert pair(second.running.address, good, TIMEOUT_S).box == "engine-room"


def test_a_stranger_may_try_so_often_and_clients_are_not_kept_waiting_for_them(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    on_box("tls", "init", "--host", "127.0.0.1", data=data)
    token = on_box("token", "create", "--name", "somebody", data=data).stdout.strip()
    box = Box(start(config=TLS), data)
    codes = [box.refusal("0000", "0" * 12)[0] for _ in range(LOCAL_PAIRING_QUOTA.requests_per_minute or 0)]
    assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
    while (refused := box.refusal("0000", "0" * 12)[0]) is grpc.StatusCode.UNAUTHENTICATED:
        pass  # of those that came back meanwhile
    assert refused is grpc.StatusCode.RESOURCE_EXHAUSTED
    with box.stranger(token) as channel:
        who = access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest(), timeout=TIMEOUT_S)
    assert who.name == "somebody"


def test_no_code_and_no_token_is_in_the_log(box: Box) -> None:
    code = box.code("logged")
    token = box.redeem(code.key, code.secret).token
    box.refusal(code.key, code.secret)
    log = box.running.log.read_text()
    assert "paired" in log
    assert "wrong pairing code" in log
    assert token.split("_", 2)[2] not in log
    assert code.secret not in log


def test_a_revoked_pairing_is_discovered_as_such(box: Box, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = on_box("pair", "--name", "ward-6", data=box.data)
    assert CliRunner().invoke(main, ["connect", box.running.address, "--code", made.stdout.strip()]).exit_code == 0
    (known,) = KnownServers().servers()
    found = FoundServer("engine-room", (box.running.address,), "0.1.0", True, known.fingerprint())
    monkeypatch.setattr(browser, "browse", lambda _: (found,))

    def status() -> str:
        return str(json.loads(CliRunner().invoke(main, ["discover", "--json"]).stdout)["servers"][0]["status"])

    assert status() == "paired"
    on_box("token", "revoke", "ward-6", data=box.data)
    assert status() == "revoked"


def test_a_code_of_another_box_asks_about_the_mix_up_first(box: Box, elsewhere: Path, tmp_path: Path) -> None:
    on_box("tls", "init", "--host", "127.0.0.1", data=tmp_path)
    made = on_box("pair", "--name", "ward-7", data=tmp_path)
    refused = CliRunner().invoke(main, ["connect", box.running.address, "--code", made.stdout.strip()])
    assert refused.exit_code == 5
    assert 0 < refused.stderr.index("from another box") < refused.stderr.index("intercepted")


@pytest.mark.parametrize("passed_on", [0, 1], ids=["from the beginning", "once the certificate was compared"])
def test_somebody_in_between_with_another_certificate_hears_nothing_of_a_code(
    box: Box, tmp_path: Path, passed_on: int
) -> None:
    certificates = CertificateFolder(tmp_path / "theirs")
    certificates.make("box", ["127.0.0.1", CertificateFolder(box.data / "tls").server.identity(
        box.data / "tls" / "ca.pem").server_name], datetime.now(UTC))  # fmt: skip
    code = box.code(f"intercepted-{passed_on}")
    interceptor = Interceptor(certificates, passed_on, box.running.address)
    try:
        with pytest.raises(ClientError) as refused:
            pair(interceptor.address, code, TIMEOUT_S)
    finally:
        interceptor.close()
    assert interceptor.connections > passed_on
    assert interceptor.heard == b""
    assert refused.value.status is CallStatus.UNAUTHENTICATED
    assert "may be intercepted" in str(refused.value)
    assert pair(box.running.address, code, TIMEOUT_S).token is not None


def test_whoever_passes_on_what_they_cannot_read_is_no_hindrance(box: Box) -> None:
    code = box.code("relayed")
    relay = Interceptor(CertificateFolder(box.data / "tls"), 9, box.running.address)
    try:
        assert pair(relay.address, code, TIMEOUT_S).token is not None
    finally:
        relay.close()


def test_where_clients_need_certificates_no_code_is_made(tmp_path: Path) -> None:
    on_box("tls", "init", "--host", "127.0.0.1", data=tmp_path)
    (tmp_path / "config.toml").write_text("[tls]\nclient_certificates = true\n")
    arguments = ["pair", "--name", "ward-3", "--config", str(tmp_path / "config.toml"), "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "edge-rag tls client" in result.stderr


def test_no_code_is_made_for_another_certificate_than_the_daemon_serves(box: Box, tmp_path: Path) -> None:
    other = CertificateFolder(tmp_path / "other")
    other.make("other", ["127.0.0.1"], datetime.now(UTC))
    config, files = tmp_path / "config.toml", other.server
    config.write_text(
        f"listen = '{box.running.address}'\n[tls]\ncertificate = '{files.certificate}'\nkey = '{files.key}'\n"
    )
    arguments = ["pair", "--name", "ward-9", "--json", "--config", str(config), "--data-dir", str(box.data)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "--certificate" in json.loads(result.stdout)["error"]["message"]
    served = str(box.data / "tls" / "server.pem")
    made = CliRunner().invoke(main, [*arguments, "--certificate", served])
    code = PairingCode.parse(json.loads(made.stdout)["code"])
    assert pair(box.running.address, code, TIMEOUT_S).token is not None
