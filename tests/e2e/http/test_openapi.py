"""The daemon keeps what its OpenAPI document says, for data that the document allows and for data that it does not."""

import json
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from edge_rag.server.http.api.openapi import ENDPOINTS, document
from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon
from tests.e2e.support.secured_daemon import edge_rag

CHECKS: Final[list[Any]] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
ENDLESS: Final = {"/api/v1/status/events", "/api/v1/audit/events"}
"""Streams that go on until the daemon stops: a response that does not end cannot be compared."""

SEED: Final = 20261123
OPERATIONS: Final = [
    (method.upper(), path) for path, methods in document()["paths"].items() for method in methods if path not in ENDLESS
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("openapi")
    settings = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
    edge_rag("tls", "init", "--host", "127.0.0.1", data=folder / "data")  # pairing codes name the certificate
    with start_daemon(folder / "data", folder / "log", settings) as running:
        ingest(running.address, {"parts.md": b"# Parts\n\nThe pump bearings are greased every 2,000 hours."})
        yield running


def compare(daemon: RunningDaemon, method: str, path: str, mode: GenerationMode, examples: int) -> None:
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document())))
    operation = schema[path][method]
    headers = {"host": "localhost"}

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        case.call_and_validate(base_url=daemon.http, headers=headers, checks=CHECKS, timeout=60)

    call()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_the_document_allows_is_answered_as_it_says(daemon: RunningDaemon, method: str, path: str) -> None:
    compare(daemon, method, path, GenerationMode.POSITIVE, 5)


TAKES_DATA: Final = [
    (endpoint.method, place)
    for endpoint in ENDPOINTS
    if "request" in endpoint.hints and (place := endpoint.path.replace(":path", "")) not in ENDLESS
]


@pytest.mark.parametrize(("method", "path"), TAKES_DATA)
def test_what_the_document_does_not_allow_is_refused(daemon: RunningDaemon, method: str, path: str) -> None:
    compare(daemon, method, path, GenerationMode.NEGATIVE, 10)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), TAKES_DATA)
def test_a_longer_search_finds_nothing_that_is_let_in(daemon: RunningDaemon, method: str, path: str) -> None:
    compare(daemon, method, path, GenerationMode.NEGATIVE, 30)
