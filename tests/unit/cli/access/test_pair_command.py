import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge_rag.cli.main import main
from edge_rag.core.pairing_code import PairingCode

LISTEN = 'listen = "0.0.0.0:1"\n'
"""A port on which nothing listens."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("box")
    made = CliRunner().invoke(main, ["tls", "init", "--host", "box.lan", "--data-dir", str(folder)])
    assert made.exit_code == 0, made.output
    return folder


def pair(data: Path, http: str, *options: str) -> Result:
    config = data / "edge-rag.toml"
    config.write_text(f"{LISTEN}[http]\n{http}\n")
    arguments = ["pair", "--name", "phone", "--config", str(config), "--data-dir", str(data), *options]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result


def test_the_url_has_the_code_where_no_server_reads_it(data: Path) -> None:
    shown = json.loads(pair(data, 'address = "0.0.0.0:7480"', "--address", "192.0.2.7:7421", "--json").stdout)
    page, code = shown["url"].split("#/sign-in/")
    assert (page, code) == ("https://192.0.2.7:7480/", shown["code"])
    assert PairingCode.parse(code).text() == code


@pytest.mark.parametrize(
    ("http", "page"),
    [
        ('address = "192.0.2.9:443"', "https://192.0.2.9:443/"),
        ('address = "[::]:7480"', "https://[2001:db8::7]:7480/"),
        ('address = "box.lan:7480"', "https://box.lan:7480/"),
    ],
)
def test_the_url_names_the_address_at_which_http_is_served(data: Path, http: str, page: str) -> None:
    shown = pair(data, http, "--address", "[2001:db8::7]:7421", "--no-qr")
    assert f"open in a browser there:\n  {page}#/sign-in/{shown.stdout.strip()}\n" in shown.stderr


def test_the_qr_code_is_that_of_the_url(data: Path) -> None:
    with_url = pair(data, 'address = "192.0.2.9:7480"', "--qr")
    without = pair(data, "console = false", "--no-qr")
    assert "█" in with_url.stderr
    assert "█" not in without.stderr


@pytest.mark.parametrize(
    ("http", "advice"),
    [
        ('address = "127.0.0.1:7480"', 'set http.address, for example http.address = "0.0.0.0:7480"'),
        ("", 'set http.address, for example http.address = "0.0.0.0:7480"'),
        ("enabled = false", "set http.enabled = true"),
        ('address = "0.0.0.0:7480"\nconsole = false', "set http.console = true"),
    ],
)
def test_without_a_url_it_says_what_to_set(data: Path, http: str, advice: str) -> None:
    shown = pair(data, http)
    assert advice in shown.stderr
    assert "sign-in" not in shown.stderr
    assert json.loads(pair(data, http, "--json").stdout)["url"] is None
