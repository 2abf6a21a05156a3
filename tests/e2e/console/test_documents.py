"""Bringing documents in, finding them again, and what becomes of them, in a browser."""

import html
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from fpdf import FPDF
from playwright.sync_api import Page, Route, expect

from edge_rag.core.documents.document import DocumentInfo
from edge_rag.storage.backup import DATABASE
from edge_rag.storage.database import Database
from edge_rag.storage.statements import ensure_collection, insert_document, new_document_id
from tests.e2e.console.conftest import CONSOLE, Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.running_daemon import RunningDaemon, sample_documents, start_daemon
from tests.e2e.support.secured_daemon import Box

HOSTILE = "<script>alert(1)</script> " + "x" * 900 + ".md"
"""A name that is markup and long."""

TURNED = "<b onclick=alert(1)> \u202egnp.exe \u2066"
"""A title that is markup and changes the direction of text."""


SMALL: Final = CONSOLE + "[ingest]\ndocument_mib = 16\n"
"""Settings of a daemon that takes files up to 16 MiB."""

MANY: Final = 10_000

SCROLLED_THROUGH: Final = """async () => {
  const list = document.querySelector('.virtual')
  const found = new Map()
  const frame = () => new Promise(requestAnimationFrame)
  // Rows above and below what is in sight exist as well.
  for (let top = 0; top < list.scrollHeight; top += 2 * list.clientHeight) {
    list.scrollTop = top
    do await frame()
    while (list.querySelector('.placeholder'))
    for (const row of list.querySelectorAll('li')) {
      found.set(Number(row.getAttribute('aria-posinset')), row.querySelector('a').title)
    }
  }
  return [...found.keys()].sort((a, b) => a - b).map((each) => found.get(each))
}"""
"""Scrolls from the first row to the last, and returns the names of all rows in the order of their positions."""


def call(daemon: RunningDaemon, method: str, path: str, body: bytes | None = None) -> Any:
    host, _, port = daemon.http.removeprefix("http://").rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=120)) as connection:
        connection.request(method, f"/api/v1/{path}", body)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer


def put(daemon: RunningDaemon, collection: str, name: str, text: str) -> None:
    outcome = call(daemon, "PUT", f"collections/{collection}/documents/{quote(name, safe='')}", text.encode())
    assert outcome["status"] in {"added", "replaced"}


def names(daemon: RunningDaemon, collection: str) -> set[str]:
    page = call(daemon, "GET", f"collections/{collection}/documents?limit=1000")
    return {document["name"] for document in page["documents"]}


def row(page: Page, name: str) -> Any:
    return page.locator(".virtual-rows > li", has=page.get_by_role("link", name=name, exact=True))


@pytest.mark.parametrize("width", [360, 1024, 2560])
def test_documents_are_listed_searched_and_ordered(
    open_page: Pages, screenshot: Callable[..., Path], axe: Callable[[Page], None], width: int
) -> None:
    page = open_page("/#/documents/default", width=width)
    rows = page.locator(".virtual-rows > li")
    expect(rows).to_have_count(len(sample_documents()))
    expect(page.get_by_role("heading", level=1)).to_have_text("Documents")
    assert widest_overflow(page) == 0
    axe(page)
    screenshot(f"documents-{width}", page)
    page.get_by_label("Search documents").fill("PARTS")
    expect(page.get_by_role("status").get_by_text("1 document found")).to_be_visible()
    expect(rows).to_have_count(1)
    page.get_by_label("Search documents").fill("nothing has this name")
    expect(page.get_by_text("No document matches.")).to_be_visible()
    page.get_by_label("Search documents").fill("")
    expect(rows).to_have_count(len(sample_documents()))
    page.get_by_label("Search documents").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.virtual-rows a')"):
            break
    assert page.evaluate("document.activeElement.textContent") == "Alarm list of Harrow Lane pumping station"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Alarm list of Harrow Lane pumping station")
    assert widest_overflow(page) == 0
    page.go_back()
    expect(rows).to_have_count(len(sample_documents()))
    page.get_by_text("Filter by metadata").click()
    page.get_by_label("Condition").fill("year >=")
    page.get_by_label("Condition").press("Enter")
    expect(page.get_by_text("the filter ends here")).to_be_visible()
    open_page.watch(page).allow(r"status of 400 \(Bad Request\)")
    page.get_by_label("Condition").fill('name ~ "parts*"')
    page.get_by_label("Condition").press("Enter")
    expect(rows).to_have_count(1)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that holds MANY documents."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "data").mkdir()
    with closing(Database(folder / "data" / DATABASE)) as database, database.writing() as connection:
        collection = ensure_collection(connection, "default")
        for number in range(MANY):
            name = f"ship {number % 40:02}/manual {number:05}.pdf"
            now = datetime.now(UTC)
            record: tuple[Any, ...] = (
                new_document_id(),
                "default",
                name,
                "",
                "application/pdf",
                "0" * 64,
                number,
                4,
                1,
                7,
                now,
                {},
            )
            insert_document(connection, collection, DocumentInfo(*record), "text", {}, 120)
    with start_daemon(folder / "data", folder / "log", CONSOLE) as running:
        yield running


def test_ten_thousand_documents_are_shown_at_once_and_none_is_lost(
    many: RunningDaemon, open_page: Pages, screenshot: Callable[..., Path], axe: Callable[[Page], None]
) -> None:
    page = open_page("/#/documents/default", daemon=many)
    rows = page.locator(".virtual-rows > li")
    expect(rows.first).to_contain_text("manual 00000.pdf")
    lists = [url for url in open_page.watch(page).requests if "/documents?" in url]
    assert len(lists) == 1, "the first paint needs one page"
    assert rows.count() < 100
    expect(rows.first).to_have_attribute("aria-setsize", str(MANY))
    axe(page)
    screenshot("documents-many", page)
    seen = page.evaluate(SCROLLED_THROUGH)
    expected = sorted(f"ship {number % 40:02}/manual {number:05}.pdf" for number in range(MANY))
    assert seen == expected
    assert rows.count() < 100
    page.evaluate("document.querySelector('.virtual').scrollTop = 0")
    expect(rows.first).to_contain_text("manual 00000.pdf")
    page.evaluate("document.querySelector('.virtual').scrollTop = 1e9")
    expect(page.locator(f'li[aria-posinset="{MANY}"]')).to_contain_text(expected[-1])
    page.get_by_label("Search documents").fill("manual 00777")
    expect(rows).to_have_count(1)


def padded(text: str, size: int) -> bytes:
    """Returns a page with a short text that has so many bytes."""
    return f"<html><title>{text}</title><!--{'x' * size}--><p>{text}</p></html>".encode()


def choose(page: Page, *files: Path, button: str = "Add files") -> None:
    page.get_by_label(button).and_(page.locator("input")).set_input_files(files)


def test_of_twenty_files_nineteen_are_stored_and_one_says_why_not(
    open_page: Pages,
    console_daemon: RunningDaemon,
    tmp_path: Path,
    screenshot: Callable[..., Path],
    axe: Callable[[Page], None],
) -> None:
    page = open_page("/#/documents/twenty")
    expect(page.get_by_text("Nothing here yet.")).to_be_visible()
    axe(page)
    screenshot("documents-empty", page)
    files = [tmp_path / f"sheet {number:02}.md" for number in range(19)]
    for number, file in enumerate(files):
        file.write_text(f"# Sheet {number}\n\nValve {number} is serviced in week {number}.")
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\nrubbish")
    choose(page, *files[:10], broken, *files[10:])
    page.get_by_role("link", name="The box").click()  # uploads go on without the view
    expect(page.locator("#background")).to_contain_text("of 20 done")
    page.get_by_role("link", name="Documents").first.click()
    uploads = page.get_by_role("region", name="Uploads")
    expect(page.locator("#notices")).to_contain_text("19 documents were stored. 1 was not")
    expect(page.locator("#background")).to_be_empty()
    expect(uploads.get_by_text("Rejected")).to_have_count(1)
    expect(uploads.locator("li").first).to_contain_text("broken.pdf")
    expect(uploads).to_contain_text("The file is damaged. Open it in its program")
    expect(page.locator("#live")).to_contain_text("broken.pdf was rejected. The file is damaged.")
    page.goto("/#/documents/twenty")
    expect(page.locator(".virtual-rows > li")).to_have_count(19)
    axe(page)
    screenshot("documents-uploaded", page)
    assert names(console_daemon, "twenty") == {file.name for file in files}
    page.get_by_role("button", name="Clear finished").click()
    expect(uploads).to_be_hidden()
    page.get_by_role("tab", name="Jobs").click()
    jobs = page.locator(".jobs > li")
    expect(jobs).to_have_count(20)
    rejected = jobs.filter(has_text="rejected")
    expect(rejected.get_by_role("heading")).to_have_text("broken.pdf")
    expect(jobs.filter(has_text="sheet 18.md").get_by_role("link")).to_have_text("sheet 18.md")
    expect(rejected).to_contain_text("The file is damaged.")
    axe(page)
    screenshot("documents-jobs", page)


def locked_pdf() -> bytes:
    document = FPDF()
    document.set_encryption(owner_password="owner", user_password="user")
    document.add_page()
    return bytes(document.output())


def test_each_reason_is_in_the_words_of_people(open_page: Pages, tmp_path: Path) -> None:
    expected = {
        "locked.pdf": (locked_pdf(), "It is protected by a password."),
        "nothing.md": (b"", "There is no text in it."),
        "many.zip": (b"PK\x05\x06" + bytes(18), "The box does not read this format."),
        "program.txt": (b"\x7fELF" + bytes(100), "The box does not read this format."),
        "rubbish.docx": (b"PK\x03\x04" + bytes(100), "The file is damaged."),
    }
    for name, (content, _) in expected.items():
        (tmp_path / name).write_bytes(content)
    page = open_page("/#/documents/refused", width=360)
    choose(page, *(tmp_path / name for name in expected))
    for name, (_, reason) in expected.items():
        expect(page.locator(".uploads > li").filter(has_text=name)).to_contain_text(reason)
    assert widest_overflow(page) == 0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon that a test may kill; ``again`` starts it on the same port."""
    with start_daemon(tmp_path / "data", tmp_path / "log", SMALL) as running:
        yield running


def again(daemon: RunningDaemon) -> RunningDaemon:
    port = daemon.http.rpartition(":")[2]
    return start_daemon(daemon.data_dir, daemon.log, SMALL.replace(":0", f":{port}"))


def test_an_upload_is_sent_again_after_the_daemon_was_killed(
    own: RunningDaemon, open_page: Pages, tmp_path: Path, screenshot: Callable[..., Path]
) -> None:
    page = open_page("/#/documents/default", daemon=own)
    open_page.watch(page).allow("ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_FAILED")
    sent: list[str] = []

    def kill_once(route: Route) -> None:
        sent.append(route.request.url)
        if len(sent) == 1:
            own.kill()
        route.continue_()

    page.route("**/queue/*", kill_once)
    large = tmp_path / "large.html"
    large.write_bytes(padded("The keel is 9 metres long.", 12 << 20))
    choose(page, large)
    expect(page.get_by_text("It goes on by itself.")).to_be_visible()
    screenshot("documents-box-gone", page)
    with again(own) as running:
        expect(page.get_by_text("1 document was stored.").first).to_be_visible()
        assert len(sent) > 1
        assert names(running, "default") == {"large.html"}


def test_a_document_is_replaced_and_several_are_deleted(
    open_page: Pages,
    console_daemon: RunningDaemon,
    tmp_path: Path,
    screenshot: Callable[..., Path],
    axe: Callable[[Page], None],
) -> None:
    for name in ("pump.md", "boiler.md", HOSTILE):
        put(console_daemon, "changes", name, f"# About\n\nThis is {name[:8]}.")
    put(console_daemon, "changes", "keel.html", f"<title>{html.escape(TURNED)}</title><p>This is the keel.")
    page = open_page("/#/documents/changes")
    rows = page.locator(".virtual-rows > li")
    expect(rows).to_have_count(4)
    assert widest_overflow(page) == 0
    expect(page.get_by_text("<script>alert(1)</script> xxx").first).to_be_visible()
    expect(page.get_by_text("<b onclick=alert(1)> ⟨U+202E⟩gnp.exe")).to_be_visible()
    axe(page)
    rows.filter(has_text="pump.md").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("About")
    expect(page.get_by_text("This is pump.md.")).to_be_visible()
    axe(page)
    screenshot("document", page)
    newer = tmp_path / "another name.md"
    newer.write_text("# Newer\n\nThis is the second edition.")
    choose(page, newer, button="Replace")
    expect(page.get_by_role("heading", level=1)).to_have_text("Newer")
    expect(page.get_by_text("This is the second edition.")).to_be_visible()
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_text("SHA-256")).to_be_visible()
    expect(page.get_by_text("Kept on the box")).to_be_visible()
    axe(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_text() == newer.read_text()
    page.get_by_role("link", name="All documents of changes").click()
    for name in ("pump.md", HOSTILE):
        rows.filter(has_text=name[:20]).get_by_role("checkbox").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(rows).to_have_count(4)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(rows).to_have_count(2)
    assert names(console_daemon, "changes") == {"boiler.md", "keel.html"}


def test_dropped_files_are_added(
    open_page: Pages, console_daemon: RunningDaemon, screenshot: Callable[..., Path]
) -> None:
    page = open_page("/#/documents/dropped", language="de", width=360)
    expect(page.get_by_text("Noch nichts da.")).to_be_visible()
    dropped = page.evaluate_handle(
        """() => {
          const data = new DataTransfer()
          data.items.add(new File(['# Anker\\n\\nDer Anker wiegt 2 t.'], 'anker.md'))
          data.items.add(new File(['# Kette'], 'kette.md'))
          return data
        }"""
    )
    area = page.get_by_text("Noch nichts da.")
    area.dispatch_event("dragenter", {"dataTransfer": dropped})
    expect(page.get_by_text("Dateien hier ablegen, um sie zu dropped hinzuzufügen")).to_be_visible()
    area.dispatch_event("drop", {"dataTransfer": dropped})
    expect(page.locator(".virtual-rows > li")).to_have_count(2)
    expect(page.get_by_text("Dateien hier ablegen")).to_be_hidden()
    assert names(console_daemon, "dropped") == {"anker.md", "kette.md"}
    screenshot("documents-dropped-360", page)
    assert widest_overflow(page) == 0


def test_reading_is_told_as_it_happens_and_can_be_cancelled(
    own: RunningDaemon, open_page: Pages, tmp_path: Path, axe: Callable[[Page], None], screenshot: Callable[..., Path]
) -> None:
    page = open_page("/#/documents/default", daemon=own)
    huge = tmp_path / "huge.md"
    with huge.open("wb") as sparse:
        sparse.truncate(17 << 20)
    open_page.watch(page).allow(r"status of 413")
    choose(page, huge)
    failed = page.locator(".uploads > li").filter(has_text="huge.md")
    expect(failed).to_contain_text("It is larger than the box takes (ingest.document_mib). Split it.")
    expect(failed.get_by_role("button", name="Try again")).to_be_visible()
    page.get_by_role("button", name="Clear finished").click()
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    for file, count in ((first, 20_000), (second, 40_000)):  # of two, the shorter one is read first
        file.write_text("\n\n".join(f"Valve {number} of pump {number * 7} is serviced." for number in range(count)))
    choose(page, first)
    rows = page.locator(".uploads > li")
    expect(rows.filter(has_text="first.md")).to_contain_text("The box computes its index.")
    choose(page, second)
    expect(rows.filter(has_text="second.md")).to_contain_text("Waits: 1 document before it.")
    page.get_by_role("tab", name="Jobs").click()
    jobs = page.locator(".jobs > li")
    expect(jobs.filter(has_text="Running")).to_have_count(2)
    axe(page)
    screenshot("documents-reading", page)
    jobs.first.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(rows.filter(has_text="first.md")).to_contain_text("It was cancelled.")
    expect(rows.filter(has_text="second.md")).to_contain_text("The box computes its index.")
    page.get_by_role("button", name="Cancel second.md").click()
    expect(rows).to_have_count(1)
    expect(jobs.filter(has_text="Cancelled")).to_have_count(2)
    page.get_by_role("tab", name="Documents").click()
    expect(page.get_by_text("Nothing here yet.")).to_be_visible()


def test_a_reader_sees_documents_and_changes_none(box: Box, open_page: Pages) -> None:
    page = open_page("/#/sign-in", daemon=box.running)
    page.get_by_label("Token").fill(box.tokens["reader"])
    page.keyboard.press("Enter")
    expect(page.locator("#menu .who")).to_have_text("reader")
    open_page.watch(page).allow(r"status of 401")
    page.get_by_role("link", name="Documents").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Documents")
    expect(page.get_by_role("tab")).to_have_text(["Documents", "Test questions"])
    expect(page.locator(".virtual-rows > li").first.get_by_role("checkbox")).to_be_disabled()
    for name in ("Add files", "Add a folder", "New collection"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.locator(".virtual-rows a").first.click()
    expect(page.get_by_role("tab", name="Text")).to_be_visible()
    for name in ("Replace", "Delete"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_an_administrator_makes_a_collection(open_page: Pages, console_daemon: RunningDaemon) -> None:
    page = open_page("/#/documents/default")
    page.get_by_role("button", name="New collection").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Title").fill("Überholung der Pumpen")
    expect(dialog.get_by_label("Name in addresses")).to_have_value("uberholung-der-pumpen")
    dialog.get_by_label("Name in addresses").fill("default")
    open_page.watch(page).allow(r"status of 409 \(Conflict\)")
    dialog.get_by_role("button", name="New collection").click()
    expect(dialog.locator(".field-error").filter(has_text="default")).to_be_visible()
    dialog.get_by_label("Name in addresses").fill("pumpen")
    dialog.get_by_role("button", name="New collection").click()
    expect(page.get_by_role("combobox", name="Collection")).to_have_value("pumpen")
    expect(page.get_by_text("Nothing here yet.")).to_be_visible()
    settings = call(console_daemon, "GET", "collections/pumpen")["collection"]["settings"]
    assert settings["title"] == "Überholung der Pumpen"
