from datetime import UTC, datetime
from pathlib import Path

import pytest

import edge_rag
from edge_rag.access.certificates import CertificateFolder, fingerprint
from edge_rag.bootstrap.network import announcement, make_announcer
from edge_rag.config.sections import DiscoverySettings
from edge_rag.config.settings import Settings
from edge_rag.errors import AccessError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    CertificateFolder(tmp_path / "tls").make("box", ["box.lan"], datetime.now(UTC))
    return Settings(data_directory=tmp_path, discovery=DiscoverySettings(name="engine-room"))


@pytest.mark.parametrize("address", ["127.0.0.1:7421", "[::1]:7421", "localhost:7421", "unix:/run/edge-rag.sock"])
def test_a_local_address_is_not_announced(settings: Settings, address: str) -> None:
    assert make_announcer(settings, address) is None


def test_a_daemon_with_announcing_off_is_not_announced(settings: Settings) -> None:
    quiet = settings.model_copy(update={"discovery": DiscoverySettings(announce=False)})
    assert make_announcer(quiet, "0.0.0.0:7421") is None
    assert make_announcer(settings, "0.0.0.0:7421") is not None


@pytest.mark.parametrize(
    ("address", "addresses"),
    [("0.0.0.0:7500", ()), ("[::]:7500", ()), ("10.0.0.7:7500", ("10.0.0.7",)), ("[fd00::7]:7500", ("fd00::7",))],
)
def test_an_announcement_has_name_version_and_certificate_fingerprint(
    settings: Settings, tmp_path: Path, address: str, addresses: tuple[str, ...]
) -> None:
    found = announcement(settings, address)
    assert (found.name, found.version, found.tls) == ("engine-room", edge_rag.__version__, True)
    assert (found.port, found.addresses) == (7500, addresses)
    assert found.sha256 == fingerprint((tmp_path / "tls" / "ca.pem").read_bytes())


def test_a_host_name_as_listen_address_cannot_be_announced(settings: Settings) -> None:
    with pytest.raises(AccessError, match="is a name"):
        announcement(settings, "box.lan:7421")


@pytest.mark.parametrize("name", ["", "a\nb", "a.b", "é" * 29])
def test_a_name_that_cannot_be_announced_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        DiscoverySettings(name=name)
