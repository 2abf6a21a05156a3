import re
import socket
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from edge_rag.access.certificates import CertificateFolder
from edge_rag.access.tokens import new_token
from edge_rag.bootstrap import network
from edge_rag.bootstrap.network import make_access, start_http
from edge_rag.config.sections import HTTP_PACKAGES, HttpSettings
from edge_rag.config.settings import Settings
from edge_rag.core.address import DEFAULT_HTTP_ADDRESS
from edge_rag.core.identity import Identity, Role
from edge_rag.errors import ConfigurationError
from edge_rag.server.limits.connection_table import ConnectionLimits
from edge_rag.server.limits.connections import Connections
from edge_rag.server.listeners import HttpListener

ROOT = Path(__file__).parents[3]


def settings(folder: Path, **values: Any) -> Settings:
    return Settings(data_directory=folder, **values)


@pytest.fixture
def secured(tmp_path: Path) -> Path:
    """A data directory with what a daemon on the network needs."""
    CertificateFolder(tmp_path / "tls").make("box", ["box.lan"], datetime.now(UTC))
    token, _ = new_token(Identity("ward-3", frozenset({Role.READER})), datetime.now(UTC), None)
    network.token_file(settings(tmp_path)).add(token)
    return tmp_path


@pytest.mark.parametrize(
    ("values", "served"),
    [
        ({}, True),
        ({"listen": "[::1]:0"}, True),
        ({"listen": "unix:/run/s"}, False),
        ({"listen": "unix:/run/s", "local_listen": "127.0.0.1:0"}, True),
        ({"listen": "0.0.0.0:7421"}, False),
        ({"listen": "0.0.0.0:7421", "local_listen": "unix:/run/s"}, False),
        ({"listen": "0.0.0.0:7421", "local_listen": "127.0.0.1:0"}, True),
        ({"listen": "127.0.0.1:0", "tls": {"always": True}}, False),
        ({"listen": "unix:/run/s", "http": {"enabled": True}}, True),
        ({"listen": "0.0.0.0:7421", "http": {"address": "127.0.0.1:0"}}, True),
        ({"http": {"enabled": False}}, False),
        ({"http": {"enabled": False, "address": "127.0.0.1:0"}}, False),
        ({"http": {"hosts": ["box.lan"]}}, True),
    ],
)
def test_only_a_host_whose_programs_may_call_without_credentials_is_open_over_http(
    secured: Path, values: dict[str, Any], served: bool
) -> None:
    listeners, _ = make_access(settings(secured, **values))
    assert (listeners.http is not None) == served


async def start(tmp_path: Path, **http: Any) -> object:
    given = settings(tmp_path, http=http)
    connections = Connections(ConnectionLimits(100, 10))
    # No call comes.
    return await start_http(given, HttpListener(given.http.address, None), cast(Any, None), connections)


def test_every_package_of_the_extra_is_looked_for_before_the_server_is_imported() -> None:
    """One that is missing would end a daemon that nobody asked for HTTP."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["http"]
    assert sorted(re.split("[<>=]", each)[0].replace("-", "_") for each in extra) == sorted(HTTP_PACKAGES)


async def test_without_the_extra_the_daemon_starts_and_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpSettings, "missing_packages", staticmethod(lambda: ("uvicorn",)))
    with capture_logs() as log:
        assert await start(tmp_path) is None
    assert "pip install 'edge-rag[http]'" in log[0]["reason"]
    asked: dict[str, Any]
    for asked in ({"enabled": True}, {"address": "127.0.0.1:0"}):
        with pytest.raises(ConfigurationError, match="pip install"):
            await start(tmp_path, **asked)


async def test_a_port_that_is_taken_keeps_only_a_daemon_from_starting_that_was_given_it(tmp_path: Path) -> None:
    try:
        other = socket.create_server(("127.0.0.1", int(DEFAULT_HTTP_ADDRESS.rpartition(":")[2])))
    except OSError:  # another program of this host has it
        other = socket.socket()
    with other:
        assert await start(tmp_path) is None
        with pytest.raises(ConfigurationError, match=f"{DEFAULT_HTTP_ADDRESS} cannot be bound"):
            await start(tmp_path, address=DEFAULT_HTTP_ADDRESS)


def test_no_proxy_is_trusted_where_callers_are_not_identified(secured: Path) -> None:
    proxied = {"http": {"address": "127.0.0.1:0", "trusted_proxies": ["127.0.0.1"]}}
    with pytest.raises(ConfigurationError, match=r"http\.trusted_proxies: .* set tls\.always = true"):
        make_access(settings(secured, **proxied))
    listeners, _ = make_access(settings(secured, **proxied, tls={"always": True}))
    assert listeners.http is not None


@pytest.mark.parametrize(("key", "value"), [("trusted_proxies", ["proxy.lan"]), ("proxy_user_header", "a: b")])
def test_proxies_are_named_by_address_and_their_header_by_name(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        settings(tmp_path, http={key: value})


@pytest.mark.parametrize(
    ("served", "console"),
    [
        ("http://127.0.0.1:7480", "http://127.0.0.1:7480/"),
        ("https://[::1]:7480", "https://[::1]:7480/"),
        ("https://box.lan:443", "https://box.lan:443/"),
        ("https://0.0.0.0:7480", "https://192.0.2.7:7480/"),
        ("https://[::]:7480", "https://192.0.2.7:7480/"),
    ],
)
def test_the_console_is_opened_where_http_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: str, console: str
) -> None:
    addresses = ("127.0.0.1", "::1", "2001:db8::7", "192.0.2.7", "fe80::1")
    monkeypatch.setattr(network, "interface_addresses", lambda: addresses)
    assert network.console_address(settings(tmp_path), served) == console
    assert network.console_address(settings(tmp_path, http={"console": False}), served) == ""
