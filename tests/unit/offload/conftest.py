from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.access.certificates import issue_server, make_authority
from edge_rag.offload.remotes.tls_trust import Trust
from tests.unit.discovery.conftest import machines

__all__ = ["machines"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@dataclass(frozen=True)
class WrongCertificate:
    """The key and certificate that a remote shows, and what it is trusted by instead."""

    shown: tuple[bytes, bytes]
    trust: Trust


@pytest.fixture(params=["authority", "fingerprint"])
def wrong_certificate(request: pytest.FixtureRequest, tmp_path: Path) -> WrongCertificate:
    now = datetime.now(UTC)
    pair = issue_server(make_authority("another", now), ["127.0.0.1"], now)
    (tmp_path / "ca.pem").write_bytes(make_authority("ours", now).certificate)
    pinned = Trust(authority=tmp_path / "ca.pem") if request.param == "authority" else Trust(fingerprint="ab" * 32)
    return WrongCertificate((pair.key, pair.certificate), pinned)
