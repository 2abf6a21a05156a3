"""Files by the official OpenAI client: sent, listed, read and deleted, by their owner only."""

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.conftest import HTTP
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, start_daemon

BOUNDARY = "b0undary"
TEXT = b"The sluice gate is raised by two turns of the crank.\n"


def form(*parts: tuple[str, bytes], end: bool = True) -> bytes:
    lines = b"".join(
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
        for head, content in parts
    )
    return lines + (f"--{BOUNDARY}--\r\n".encode() if end else b"")


def post(daemon: RunningDaemon, body: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> Any:
    return request(daemon, "POST", "/v1/files", body, {"content-type": content_type})


def request(
    daemon: RunningDaemon, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Any:
    connection = http.client.HTTPConnection(daemon.http.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def stored_files(daemon: RunningDaemon) -> set[str]:
    return {path.name for path in (daemon.data_dir / "files").iterdir()}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that takes documents of at most a mebibyte."""
    folder = tmp_path_factory.mktemp("files")
    with start_daemon(folder / "data", folder / "log", HTTP + "[ingest]\ndocument_mib = 1\n") as running:
        yield running


@pytest.fixture
def files(small: RunningDaemon) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{small.http}/v1", api_key="any", max_retries=0) as client:
        yield client.files


def test_a_file_is_sent_read_listed_and_deleted(files: Any, small: RunningDaemon) -> None:
    content = TEXT * 10_000
    sent = files.create(file=("notes/sluice gate ü.txt", content, "text/plain"), purpose="assistants")
    assert (sent.object, sent.bytes, sent.status, sent.purpose) == ("file", len(content), "processed", "assistants")
    assert sent.filename == "notes/sluice gate ü.txt"
    assert sent.expires_at == pytest.approx(sent.created_at + 7 * 24 * 3600, abs=600)
    assert stored_files(small) == {sent.id}

    assert files.retrieve(sent.id) == sent
    assert files.content(sent.id).read() == content
    other = files.create(
        file=Path(__file__), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert other.expires_at == pytest.approx(other.created_at + 3600, abs=600)
    assert [file.id for file in files.list()] == [other.id, sent.id]
    assert [file.id for file in files.list(order="asc", limit=1)] == [sent.id, other.id]  # the client pages on
    assert [file.id for file in files.list(purpose="user_data")] == [other.id]

    for file in (sent, other):
        assert files.delete(file.id).deleted
    assert stored_files(small) == set()
    for use in (files.retrieve, files.content, files.delete):
        with pytest.raises(openai.NotFoundError) as missing:
            use(sent.id)
        assert missing.value.code == "file_not_found"


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ([('name="purpose"', b"assistants")], "file"),
        ([('name="file"; filename="a"', TEXT)], "purpose"),
        ([('name="purpose"', b"batch"), ('name="file"; filename="a"', TEXT)], "purpose"),
        ([('name="purpose"', b"x" * 5000)], "purpose"),
        ([('name="purpose"', b"\xff")], "purpose"),
        ([('name="purpose"', b"assistants"), ('name="purpose"', b"assistants")], "purpose"),
        ([('name="file"; filename="a"', TEXT), ('name="file"; filename="b"', TEXT)], "file"),
        ([('name="file"; filename="a"', TEXT), ('name="folder"', b"b")], "folder"),
        ([('name="file"', TEXT)], "file"),
        ([('name="file"; filename="a%0Ab"', TEXT)], "file"),
        ([('name="file"; filename="' + "a" * 2000 + '"', TEXT)], "file"),
        ([('name="expires_after[seconds]"', b"5"), ('name="file"; filename="a"', TEXT)], "purpose"),
        ([("filename=a", TEXT)], "body"),
        ([(f'name="f{number}"', b"") for number in range(17)], "body"),
    ],
)
def test_a_form_is_refused_by_the_field_that_is_wrong(
    small: RunningDaemon, parts: list[tuple[str, bytes]], field: str
) -> None:
    status, answer = post(small, form(*parts))
    assert (status, answer["error"]["param"]) == (400, field), answer
    assert stored_files(small) == set()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(('name="file"; filename="a"', TEXT), end=False), f"multipart/form-data; boundary={BOUNDARY}"),
        (b"--" + b"\r\n--" * 10_000, f"multipart/form-data; boundary={BOUNDARY}"),
        (b"x" * 10_000, f"multipart/form-data; boundary={BOUNDARY}"),
        (form(("x" * 5000 + '="file"', TEXT)), f"multipart/form-data; boundary={BOUNDARY}"),
        (form(("a\r\n" + "b: c\r\n" * 20 + "d: e", TEXT)), f"multipart/form-data; boundary={BOUNDARY}"),
        (form(), "multipart/form-data; boundary=" + "b" * 300),
        (form(), "multipart/form-data"),
        (b"{}", "application/json"),
        (b"", f"multipart/form-data; boundary={BOUNDARY}"),
    ],
)
def test_what_is_no_form_is_refused_and_leaves_nothing(small: RunningDaemon, body: bytes, content_type: str) -> None:
    status, answer = post(small, body, content_type)
    assert (status, answer["error"]["param"]) in {(400, "body"), (400, "content-type")}, answer
    assert stored_files(small) == set()


def test_a_file_that_is_too_large_is_refused_before_or_while_it_is_sent(files: Any, small: RunningDaemon) -> None:
    for size in ((1 << 20) + 1, 3 << 20):
        with pytest.raises(openai.APIStatusError) as refused:
            files.create(file=("a.txt", b"x" * size), purpose="assistants")
        assert refused.value.status_code == 413
        assert "ingest.document_mib" in refused.value.message
    assert stored_files(small) == set()


def test_the_bytes_of_a_client_that_goes_before_the_end_are_deleted(small: RunningDaemon) -> None:
    connection = http.client.HTTPConnection(small.http.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/v1/files")
    connection.putheader("content-type", f"multipart/form-data; boundary={BOUNDARY}")
    connection.putheader("content-length", str(1 << 20))
    connection.endheaders()
    connection.send(form(('name="file"; filename="a"', b"x" * 200_000), end=False))
    while not stored_files(small):
        pass
    connection.close()
    while stored_files(small):
        pass
    assert "internal error" not in small.log.read_text()


def test_a_large_file_takes_no_memory_of_its_size(http_daemon: RunningDaemon) -> None:
    def memory(name: str) -> int:
        lines = Path(f"/proc/{http_daemon.process.pid}/status").read_text().splitlines()
        (found,) = [line.split() for line in lines if line.startswith(f"{name}:")]
        return int(found[1]) << 10

    parts = [('name="purpose"', b"user_data"), ('name="file"; filename="a"', b"x" * (1 << 20))]
    small = post(http_daemon, form(*parts))[1]
    Path(f"/proc/{http_daemon.process.pid}/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    parts[1] = ('name="file"; filename="a"', b"x" * (48 << 20))
    status, large = post(http_daemon, form(*parts))
    assert (status, large["bytes"]) == (200, 48 << 20)
    assert memory("VmHWM") - before < 8 << 20
    for file in (small, large):
        assert request(http_daemon, "DELETE", f"/v1/files/{file['id']}")[0] == 200


def test_the_examples_of_the_guide_run(small: RunningDaemon, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "http.md").read_text(encoding="utf-8")
    section = guide.partition("## Files")[2].partition("\n## ")[0]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 1
    (tmp_path / "manual.pdf").write_bytes(TEXT)
    client = 'from openai import OpenAI\nclient = OpenAI(base_url="http://127.0.0.1:7480/v1", api_key="any")\n'
    program = (client + "".join(examples)).replace("http://127.0.0.1:7480", small.http)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("file-")
    assert len(stored_files(small)) == 1
    for file in stored_files(small):
        assert request(small, "DELETE", f"/v1/files/{file}")[0] == 200


@pytest.mark.smoke
def test_a_document_that_came_another_way_is_a_file(http_daemon: RunningDaemon, client: Any) -> None:
    found = client.vector_stores.search("default", query="How often must the pump bearings be greased?").data[0]
    file = client.files.retrieve(found.file_id)
    assert (file.id, file.filename, file.object) == (found.file_id, found.filename, "file")
    assert file.id not in [each.id for each in client.files.list()]
    sent = (ROOT / "deploy" / "samples" / found.filename).read_bytes()
    assert client.files.content(file.id).read() == sent
