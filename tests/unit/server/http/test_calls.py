"""Hosts, error objects and names of peers, without a server."""

import subprocess
import sys

import pytest

from edge_rag.core.address import name_of_peer, peer_of
from edge_rag.core.ids import RequestId
from edge_rag.errors import CollectionNotFound, InvalidRequest, Overloaded, Unauthenticated
from edge_rag.server.http.exchange import HTTP_STATUS, error_headers, error_object, is_own_host
from edge_rag.service.call import CallFailed
from edge_rag.service.codes import Code


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7480", "localhost", "LOCALHOST:1", "[::1]:7480", "192.0.2.7", "box.lan:7480"]
)
def test_addresses_and_configured_names_are_the_box(host: str) -> None:
    assert is_own_host(host, frozenset({"box.lan"}))


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1:7480@evil.example", "a b"],
)
def test_any_other_name_could_be_that_of_a_site_which_points_at_the_box(host: str) -> None:
    assert not is_own_host(host, frozenset({"box.lan"}))


def test_every_code_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(Code) - {Code.OK}


def test_an_error_names_type_field_and_class() -> None:
    unusable = InvalidRequest("seed", "must be positive")
    error = error_object(CallFailed.of(unusable, RequestId("r"), str(unusable)))
    expected = {"message": "seed: must be positive", "type": "invalid_request_error"}
    assert error == {**expected, "param": "seed", "code": "invalid_request"}
    missing = CollectionNotFound("a")
    assert error_object(CallFailed.of(missing, RequestId("r"), "no"))["code"] == "collection_not_found"


def test_a_client_is_told_whether_and_when_to_retry() -> None:
    busy = error_headers(CallFailed.of(Overloaded("call", 0.25), RequestId("r"), "busy"))
    assert busy == {"x-request-id": "r", "x-should-retry": "true", "retry-after-ms": "250"}
    unknown = error_headers(CallFailed.of(Unauthenticated("who?"), RequestId("r"), "who?"))
    assert (unknown["www-authenticate"], unknown["x-should-retry"]) == ("Bearer", "false")


def test_while_http_is_off_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, edge_rag.daemon; print([name for name in sys.modules if name.startswith"
        "(('starlette', 'uvicorn', 'h11', 'edge_rag.server.http'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("peer", [("192.0.2.7", 5000), ("2001:db8::7", 5000)])
def test_peers_have_the_names_that_grpc_gives_them(peer: tuple[str, int]) -> None:
    assert peer_of(name_of_peer(peer)) == peer


def test_a_mapped_address_is_that_of_ipv4() -> None:
    assert name_of_peer(("::ffff:192.0.2.7", 5000)) == "ipv4:192.0.2.7:5000"
