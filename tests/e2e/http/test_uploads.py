"""Uploads in pieces by a client of the tus protocol: resumed after cut connections and a killed daemon."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tusclient import client as tus

from edge_rag.client import Client
from tests.e2e.http.conftest import HTTP
from tests.e2e.support.running_daemon import RunningDaemon, start_daemon

SENTENCE = "Sluice gate {} is raised by {} turns of the crank.\n"
CONTENT = (" " * 4000 + "\n").join(SENTENCE.format(number, number + 2) for number in range(30)).encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PIECE = "application/offset+octet-stream"
WITHIN_S = 60.0


def encoded(**metadata: str) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in metadata.items())


def call(
    daemon: RunningDaemon, method: str, path: str, body: bytes | None = None, /, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(daemon.http.removeprefix("http://"), timeout=60)
    names = {"tus-resumable": "1.0.0"} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path.removeprefix(daemon.http), body, names)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def begin(daemon: RunningDaemon, size: int = len(CONTENT), **metadata: str) -> str:
    about = encoded(**{"filename": "sluice.txt", "collection": "gates", **metadata})
    status, headers, body = call(daemon, "POST", "/api/v1/uploads", upload_length=str(size), upload_metadata=about)
    assert status == 201, body
    return headers["location"].removeprefix(daemon.http)


def offset_of(daemon: RunningDaemon, upload: str) -> int:
    status, headers, _ = call(daemon, "HEAD", upload)
    assert (status, headers["upload-length"]) == (200, str(len(CONTENT)))
    return int(headers["upload-offset"])


def document_of(daemon: RunningDaemon, job: str, name: str = "sluice.txt") -> Any:
    with Client(daemon.address, timeout_s=120) as client:
        *_, _ = client.watch_job(job)
        return client.document(name, collection="gates")


def uploader(daemon: RunningDaemon, **options: Any) -> Any:
    about = {"filename": "sluice.txt", "collection": "gates", "metadata": json.dumps({"site": "north"})}
    return tus.TusClient(f"{daemon.http}/api/v1/uploads").uploader(
        file_stream=io.BytesIO(CONTENT), metadata=about, **options
    )


def test_what_the_server_can_do_is_told(http_daemon: RunningDaemon) -> None:
    status, headers, _ = call(http_daemon, "OPTIONS", "/api/v1/uploads")
    assert (status, headers["tus-version"], headers["tus-max-size"]) == (204, "1.0.0", str(64 << 20))
    assert set(headers["tus-extension"].split(",")) >= {"creation", "termination", "expiration"}
    status, headers, _ = call(http_daemon, "HEAD", "/api/v1/uploads/any", tus_resumable="0.2.2")
    assert (status, headers["tus-version"]) == (412, "1.0.0")


@pytest.mark.parametrize("checksum", [False, True])
def test_an_upload_in_pieces_becomes_a_document(http_daemon: RunningDaemon, checksum: bool) -> None:
    upload = uploader(http_daemon, chunk_size=30_000, upload_checksum=checksum)
    upload.upload()
    _, headers, _ = call(http_daemon, "HEAD", upload.url)
    found = document_of(http_daemon, headers["edge-rag-job"])
    assert (found.info.sha256, found.info.metadata) == (SHA256, {"site": "north"})
    _, headers, _ = call(http_daemon, "HEAD", upload.url)
    assert (headers["edge-rag-state"], headers["edge-rag-document"]) == ("added", found.info.document_id)
    assert call(http_daemon, "DELETE", upload.url)[0] == 204
    assert call(http_daemon, "HEAD", upload.url)[0] == 404
    with Client(http_daemon.address, timeout_s=120) as client:
        assert "gates" not in {info.name for info in client.collections()}


def test_an_upload_goes_on_after_the_daemon_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    daemon = start_daemon(data, tmp_path / "log-1", HTTP)
    upload = uploader(daemon, chunk_size=40_000)
    upload.upload_chunk()
    cut = http.client.HTTPConnection(daemon.http.removeprefix("http://"), timeout=60)
    cut.putrequest("PATCH", upload.url.removeprefix(daemon.http))
    sent = {"tus-resumable": "1.0.0", "content-type": PIECE, "upload-offset": "40000", "content-length": "50000"}
    for name, value in sent.items():
        cut.putheader(name, value)
    cut.endheaders()
    cut.send(CONTENT[40_000:60_000])
    path = data / "files" / upload.url.rpartition("/")[2]
    daemon.kill()
    cut.close()
    with start_daemon(data, tmp_path / "log-2", HTTP) as restarted:
        at = offset_of(restarted, f"/api/v1/uploads/{path.name}")
        assert at == path.stat().st_size
        assert at >= 40_000  # what was acknowledged
        assert path.read_bytes() == CONTENT[:at]
        resumed = tus.TusClient(f"{restarted.http}/api/v1/uploads").uploader(
            file_stream=io.BytesIO(CONTENT), url=f"{restarted.http}/api/v1/uploads/{path.name}", chunk_size=40_000
        )
        assert resumed.offset == at
        resumed.upload()
        _, headers, _ = call(restarted, "HEAD", str(resumed.url))
        assert document_of(restarted, headers["edge-rag-job"]).info.sha256 == SHA256


def test_what_came_before_a_cut_is_kept_and_a_dead_connection_stops_nobody(http_daemon: RunningDaemon) -> None:
    upload = begin(http_daemon)
    dead = http.client.HTTPConnection(http_daemon.http.removeprefix("http://"), timeout=60)
    dead.putrequest("PATCH", upload)
    sent = {"tus-resumable": "1.0.0", "content-type": PIECE, "upload-offset": "0", "content-length": str(len(CONTENT))}
    for name, value in sent.items():
        dead.putheader(name, value)
    dead.endheaders()
    dead.send(CONTENT[:70_000])
    path = http_daemon.data_dir / "files" / upload.rpartition("/")[2]
    until = time.monotonic() + WITHIN_S
    while not (path.exists() and path.stat().st_size):  # to ask for the offset before would end the request
        assert time.monotonic() < until, "nothing was written"
    at = offset_of(http_daemon, upload)
    assert at
    assert path.read_bytes()[:at] == CONTENT[:at]
    status, headers, _ = call(http_daemon, "PATCH", upload, CONTENT[at:], content_type=PIECE, upload_offset=str(at))
    assert (status, headers["upload-offset"]) == (204, str(len(CONTENT)))
    dead.close()
    assert document_of(http_daemon, headers["edge-rag-job"]).info.sha256 == SHA256
    call(http_daemon, "DELETE", upload)


def test_a_piece_at_another_place_or_of_another_checksum_is_refused(http_daemon: RunningDaemon) -> None:
    upload = begin(http_daemon)

    def patch(offset: int, piece: bytes, **headers: str) -> int:
        return call(http_daemon, "PATCH", upload, piece, content_type=PIECE, upload_offset=str(offset), **headers)[0]

    digest = base64.b64encode(hashlib.sha256(CONTENT[:100]).digest()).decode()
    assert patch(5, CONTENT[5:100]) == 409
    assert patch(0, CONTENT[1:101], upload_checksum=f"sha256 {digest}") == 460
    assert offset_of(http_daemon, upload) == 0
    assert patch(0, CONTENT[:100], upload_checksum=f"sha256 {digest}") == 204
    assert patch(0, CONTENT[:100]) == 409
    assert patch(100, CONTENT[100:] + b"more") == 413
    assert call(http_daemon, "PATCH", upload, b"x", upload_offset="100")[0] == 400
    assert patch(100, b"x", upload_checksum="crc32 AAAA") == 400
    assert offset_of(http_daemon, upload) >= 100
    call(http_daemon, "DELETE", upload)


@pytest.mark.parametrize(
    ("headers", "status", "param"),
    [
        ({"upload_metadata": encoded(filename="a")}, 400, "upload-length"),
        ({"upload_length": "-1", "upload_metadata": encoded(filename="a")}, 400, "upload-length"),
        ({"upload_length": str(65 << 20), "upload_metadata": encoded(filename="a")}, 413, None),
        ({"upload_length": "5"}, 400, "upload-metadata.filename"),
        ({"upload_length": "5", "upload_metadata": "filename =="}, 400, "upload-metadata.filename"),
        ({"upload_length": "5", "upload_metadata": "filename /w=="}, 400, "upload-metadata.filename"),
        ({"upload_length": "5", "upload_metadata": encoded(filename="a", owner="b")}, 400, "upload-metadata.owner"),
        (
            {"upload_length": "5", "upload_metadata": encoded(filename="a", collection="../b")},
            400,
            "upload-metadata.collection",
        ),
        (
            {"upload_length": "5", "upload_metadata": encoded(filename="a", metadata="[1]")},
            400,
            "upload-metadata.metadata",
        ),
    ],
)
def test_an_upload_is_refused_by_the_field_that_is_wrong(
    http_daemon: RunningDaemon, headers: dict[str, str], status: int, param: str | None
) -> None:
    found, _, body = call(http_daemon, "POST", "/api/v1/uploads", None, **headers)
    assert (found, json.loads(body)["error"]["param"]) == (status, param), body


def test_an_upload_may_come_with_its_creation(http_daemon: RunningDaemon) -> None:
    about = encoded(filename="whole.txt", collection="gates")
    sent = {"upload_length": str(len(CONTENT)), "upload_metadata": about, "content_type": PIECE}
    status, headers, _ = call(http_daemon, "POST", "/api/v1/uploads", CONTENT, **sent)
    assert (status, headers["upload-offset"]) == (201, str(len(CONTENT)))
    assert document_of(http_daemon, headers["edge-rag-job"], "whole.txt").info.sha256 == SHA256
    call(http_daemon, "DELETE", headers["location"])
