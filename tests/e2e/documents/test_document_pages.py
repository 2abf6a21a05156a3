"""Originals of documents and their pages over HTTP: what a citation leads to."""

import hashlib
import http.client
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2
import pytest
from fpdf import FPDF
from PIL import Image

from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon

CITED = "The bearings of the pump must be greased every 2,000 operating hours."
OTHER = "Close the suction valve before you open the strainer."


def manual() -> bytes:
    """A PDF of two pages in two columns; the second one is shown turned."""
    pdf = FPDF()
    for heading, sentence in (("Valves", OTHER), ("Bearings", CITED)):
        pdf.add_page()
        pdf.set_font("Helvetica", size=18)
        pdf.cell(0, 12, heading, new_x="LMARGIN", new_y="NEXT")
        pdf.set_font("Helvetica", size=10)
        with pdf.text_columns(ncols=2, gutter=10, line_height=1.4) as columns:
            columns.write(" ".join(f"In step {number} nothing else is done. {sentence}" for number in range(6)))
    document = pypdfium2.PdfDocument(bytes(pdf.output()))
    document[1].set_rotation(90)
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


@dataclass(frozen=True)
class Box:
    running: RunningDaemon
    content: bytes
    ids: dict[str, str]

    def get(self, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        host, _, port = self.running.http.removeprefix("http://").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            connection.request("GET", path.removeprefix(self.running.http), headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> tuple[int, dict[str, Any]]:
        status, _, body = self.get(path, accept="application/json")
        return status, json.loads(body)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("daemon")
    content = manual()
    sent = {
        "a/manual.pdf": content,
        "notes.txt": CITED.encode(),
        "page.html": b"<script>alert(1)</script><p>Hello there.</p>",
    }
    config = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
    with start_daemon(folder / "data", folder / "log", config) as running:
        outcomes = ingest(running.address, sent)
        ids = {outcome.name: outcome.document.id for outcome in outcomes if outcome.document.original}
        yield Box(running, content, ids)


@pytest.mark.smoke
def test_an_original_comes_back_as_it_was_sent_and_never_as_a_page_of_the_box(box: Box) -> None:
    status, headers, body = box.get(f"/documents/{box.ids['a/manual.pdf']}/original")
    assert (status, hashlib.sha256(body).digest()) == (200, hashlib.sha256(box.content).digest())
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''manual.pdf"
    status, headers, body = box.get(f"/documents/{box.ids['page.html']}/original")
    assert (status, headers["content-type"], headers["x-content-type-options"]) == (
        200,
        "application/octet-stream",
        "nosniff",
    )
    assert b"<script>" in body


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=10-", 10, None), ("bytes=-7", -7, None), ("bytes=5-99999999", 5, None)],
)
def test_a_part_of_an_original_is_that_part(box: Box, wanted: str, start: int, end: int | None) -> None:
    status, headers, body = box.get(f"/documents/{box.ids['a/manual.pdf']}/original", range=wanted)
    assert (status, body) == (206, box.content[start:end])
    first = start % len(box.content)
    assert headers["content-range"] == f"bytes {first}-{first + len(body) - 1}/{len(box.content)}"


def test_a_part_that_is_not_there_is_refused_and_what_is_no_part_is_ignored(box: Box) -> None:
    path = f"/documents/{box.ids['a/manual.pdf']}/original"
    status, headers, _ = box.get(path, range=f"bytes={len(box.content)}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(box.content)}")
    for ignored in ("bytes=9-3", "bytes=0-1,4-5", "lines=0-1", "bytes=-"):
        assert box.get(path, range=ignored)[::2] == (200, box.content)


@pytest.mark.smoke
def test_the_range_of_a_citation_tells_its_page_its_section_and_where_to_see_it(box: Box) -> None:
    document = box.ids["a/manual.pdf"]
    _, whole = box.json(f"/documents/{document}?start=0")
    start = whole["text"].index(CITED)
    status, found = box.json(f"/documents/{document}?start={start}&end={start + len(CITED)}&page=2")
    assert (status, found["text"], found["page"], found["pages"], found["section"]) == (200, CITED, 2, 2, "Bearings")
    assert box.get(found["original_url"])[2] == box.content
    status, headers, picture = box.get(found["page_url"])
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(picture)).size == (1000, 707)  # turned
    _, notes = box.json(f"/documents/{box.ids['notes.txt']}?start=0")
    assert (notes["page"], notes["page_url"]) == (None, None)
    assert box.get(notes["original_url"])[2] == CITED.encode()


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("notes.txt:/pages/1", 404, "has no pages: its format is text/plain"),
        ("a/manual.pdf:/pages/3", 400, "page: must be 1 to 2"),
        ("a/manual.pdf:/pages/0", 400, "page: must be 1 to 2"),
        ("a/manual.pdf:/pages/two", 400, "page: must be the number of a page"),
        ("a/manual.pdf:/pages/1?width=2001", 400, "width: must be 1 to 2,000 pixels"),
        ("a/manual.pdf:/pages/1?width=0", 400, "width: must be 1 to 2,000 pixels"),
        ("a/manual.pdf:/pages/1?start=3", 400, "end: is missing"),
        ("a/manual.pdf:/pages/1?start=3&end=3", 400, "end: must be after start"),
        ("a/manual.pdf:/pages/1?start=3&end=9&marked=maybe", 400, "marked: must be true or false"),
        ("a/manual.pdf:/pages/1/boxes", 400, "start: is missing"),
        ("a/manual.pdf:/pages/1/boxes?start=x&end=3", 400, "start: must be a position"),
        ("none:/original", 404, "document 'none' does not exist"),
    ],
)
def test_what_cannot_be_shown_says_why(box: Box, path: str, status: int, says: str) -> None:
    name, _, rest = path.partition(":")
    found, answer = box.json(f"/documents/{box.ids.get(name, name)}{rest}")
    assert found == status
    assert says in answer["error"]["message"]


def test_a_document_without_an_original_has_text_only(box: Box, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("without")
    config = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n[ingest]\nkeep_originals = false\n'
    with start_daemon(folder / "data", folder / "log", config) as running:
        (outcome,) = ingest(running.address, {"manual.pdf": box.content})
        assert not outcome.document.original
        without = Box(running, box.content, {})
        _, found = without.json("/documents/manual.pdf?start=0&end=5")
        assert (found["page"], found["original_url"], found["page_url"]) == (1, None, None)
        for path in ("original", "pages/1", "pages/1/boxes?start=0&end=3"):
            status, answer = without.json(f"/documents/manual.pdf/{path}")
            assert (status, answer["error"]["code"]) == (404, "original_not_kept")
            assert "ingest.keep_originals" in answer["error"]["message"]
