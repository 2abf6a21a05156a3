from pathlib import Path

import pytest

from edge_rag.config.settings import load_settings
from edge_rag.core.placement import OffloadMode, OffloadUse
from edge_rag.errors import ConfigurationError

TLS = 'authority = "/etc/ca.pem"'
PIN = f'fingerprint = "{"ab:" * 31}ab"'


def loaded(tmp_path: Path, remote: str, mode: str = "overflow") -> tuple[str, ...]:
    file = tmp_path / "settings.toml"
    file.write_text(f'[offload]\nmode = "{mode}"\n[[offload.remotes]]\nname = "a"\n{remote}\n')
    return tuple(each.address for each in load_settings(file).offload.remotes)


@pytest.mark.parametrize(
    "remote",
    [
        f'address = "10.0.0.9:7421"\n{TLS}',
        f'address = "10.0.0.9:7421"\n{PIN}\ncredential = "/etc/token"',
        f'address = "[fd00::1]:7421"\n{TLS}',
        f'address = "box:office"\n{TLS}',
        'address = "127.0.0.1:7421"',
        'kind = "openai"\naddress = "http://localhost:8000/v1"\nmodel = "m"',
        f'kind = "openai"\naddress = "https://gpu.lan:8000/v1"\nmodel = "m"\n{PIN}',
        'address = "127.0.0.1:7421"\nuses = ["embed"]',
    ],
)
def test_a_remote_with_tls_or_on_loopback_is_accepted(tmp_path: Path, remote: str) -> None:
    assert len(loaded(tmp_path, remote)) == 1


@pytest.mark.parametrize(
    ("remote", "problem"),
    [
        ('address = "10.0.0.9:7421"', "over TLS only"),
        ('address = "box:office"', "over TLS only"),
        ('kind = "openai"\naddress = "http://10.0.0.9/v1"\nmodel = "m"', "over TLS only"),
        ('kind = "openai"\naddress = "https://10.0.0.9/v1"\nmodel = "m"', "https requires"),
        ('kind = "openai"\naddress = "http://127.0.0.1/v1"', "`model` is required"),
        (f'address = "10.0.0.9:7421"\nmodel = "m"\n{TLS}', "no other kind"),
        (f'address = "10.0.0.9:7421"\n{TLS}\n{PIN}', "exclude each other"),
        (f'address = "10.0.0.9"\n{TLS}', "HOST:PORT"),
        (f'address = "10.0.0.9:99999"\n{TLS}', "HOST:PORT"),
        (f'kind = "openai"\naddress = "ftp://gpu/v1"\nmodel = "m"\n{TLS}', "http"),
        ('address = "127.0.0.1:7421"\nfingerprint = "abc"', "fingerprint"),
        ('address = "127.0.0.1:7421"\nuses = []', "uses"),
        ('address = "127.0.0.1:7421"\nuses = ["embed", "embed"]', "is repeated"),
        ('address = "127.0.0.1:7421"\nuses = ["retrieve"]', "uses"),
        ('kind = "openai"\naddress = "http://127.0.0.1/v1"\nmodel = "m"\nuses = ["embed"]', "generate only"),
    ],
)
def test_a_remote_with_missing_or_contradictory_keys_is_rejected(tmp_path: Path, remote: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        loaded(tmp_path, remote)


def test_duplicate_remote_names_and_a_mode_without_remotes_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the same name"):
        loaded(tmp_path, 'address = "127.0.0.1:1"\n[[offload.remotes]]\nname = "a"\naddress = "127.0.0.1:2"')
    file = tmp_path / "none.toml"
    file.write_text('[offload]\nmode = "overflow"\n')
    with pytest.raises(ConfigurationError, match="requires remotes"):
        load_settings(file)


def test_nothing_is_offloaded_by_default() -> None:
    assert load_settings().offload.mode is OffloadMode.NEVER


def test_a_remote_only_generates_unless_configured_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[offload]\n[[offload.remotes]]\nname = "a"\naddress = "127.0.0.1:1"\n')
    assert load_settings(file).offload.remotes[0].uses == (OffloadUse.GENERATE,)
