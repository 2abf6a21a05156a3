"""The source pane in a real browser: cited ranges in text and on pages, exactly where the stored offsets say."""

import http.client
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from fpdf import FPDF
from playwright.sync_api import Locator, Page, expect

from edge_rag.core.documents.parts import ChunkPlace, parts_of
from edge_rag.core.shapes.encoder import encode
from tests.e2e.console.conftest import CONSOLE, Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon

CITED = "🔧 The pump’s 🧰 bearings — محامل المضخة — must be greased every 2,000 hours."
ARABIC = "يجب تشحيم محامل المضخة كل ألفي ساعة تشغيل 🔧."
ON_PAPER = "The bearings of the pump must be greased every 2,000 operating hours by the mechanic on watch."
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe"
LINES = 2
"""That the citation takes on its page; it is justified, so that the box tells the place of each word."""

SIDES = ("left", "top", "right", "bottom")
PARAGRAPHS = 120
MOST_RANGES = 8
COLLECTION = "source"


def long_text() -> str:
    """A text of which the citation is in the middle, far from both ends, with characters beyond the basic plane."""
    lines = [f"# Manual 📕\n\n{'🛠️ first line of the manual 🛠️'}"]
    lines += [f"Step {number} 🛠️: turn the valve slowly and wait {number} s. " * 5 for number in range(PARAGRAPHS)]
    lines += [f"## Bearings 🔩\n\nBefore it. {CITED} After it.", f"## تشحيم\n\n{ARABIC}"]
    lines += [f"Note {number} 🧪: the strainer is cleaned weekly. " * 5 for number in range(PARAGRAPHS)]
    return "\n\n".join([*lines, "The last line of the manual."])


def manual() -> bytes:
    """A PDF of three pages, the citation on the second."""
    pdf = FPDF()
    pdf.set_font("Helvetica", size=12)
    for heading, sentence in (
        ("Valves", "Close both."),
        ("Bearings", ON_PAPER),
        ("Seals", "Change both."),
    ):
        pdf.add_page()
        pdf.set_font("Helvetica", size=20)
        pdf.cell(0, 12, heading, new_x="LMARGIN", new_y="NEXT")
        pdf.set_font("Helvetica", size=11)
        for step in range(14):
            pdf.multi_cell(0, 6, f"In step {step} of this page nothing is greased yet.", new_x="LMARGIN", new_y="NEXT")
        pdf.multi_cell(90, 6, sentence)
    return bytes(pdf.output())


TABLE = """# Parts list

| Part number | Part | Shelf | Price |
|---|---|---|---|
| HL-1001 | Mechanical seal 🔩 | B3 | 412.00 |
| HL-1002 | | A1 | 87.50 |
"""


@pytest.fixture(scope="module")
def documents(console_daemon: RunningDaemon) -> None:
    sent = {
        "manual.md": long_text().encode(),
        "manual.pdf": manual(),
        "parts.md": TABLE.encode(),
        HOSTILE.replace("\u202e", "") + ".txt": f"Before.\n\n{HOSTILE} says 12 bar.".encode(),
    }
    outcomes = ingest(console_daemon.address, sent, COLLECTION)
    assert [outcome.reason for outcome in outcomes] == [""] * len(sent)


def read_json(daemon: RunningDaemon, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(urlsplit(daemon.http).netloc, timeout=60)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}", headers={"accept": "application/json"})
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()


def citation(daemon: RunningDaemon, name: str, text: str, collection: str = COLLECTION) -> dict[str, Any]:
    """Returns a citation of the only place of a text in a document, as an answer has it."""
    path, where = f"/documents/{quote(name, safe='')}", {"collection": collection}
    characters = read_json(daemon, path, {**where, "start": 0, "end": 1})["characters"]
    at, whole = 0, ""
    while at < characters:
        piece = read_json(daemon, path, {**where, "start": at, "end": characters})
        whole, at = whole + piece["text"], piece["end"]
    start = whole.index(text)
    end = start + len(text)
    found = read_json(daemon, path, {**where, "start": start, "end": end})
    place = {"page": found["page"], "start": start, "end": end, "text": text}
    return {"collection": collection, "document": name, "document_id": found["id"], **place}


def open_source(page: Page, citations: Sequence[Mapping[str, Any]], index: int = 0) -> Locator:
    page.evaluate(
        """async (options) => {
          const { openSource } = await import(`${document.documentElement.dataset.base}/source/pane.js`);
          document.querySelector('.brand').focus();
          await openSource({ ...options, onShow: (at) => (window.shownAt = at) });
        }""",
        {"citations": citations, "index": index},
    )
    return page.locator("#aside")


def marked(pane: Locator) -> str:
    pane.locator("mark").first.wait_for()
    return "".join(pane.locator("mark").all_text_contents())


@pytest.fixture
def wide(open_page: Pages, documents: None) -> Page:
    return open_page("/", width=1400, height=900)


def test_a_cited_range_is_marked_to_the_character_whatever_its_script(
    wide: Page, console_daemon: RunningDaemon, screenshot: Callable[..., Path], axe: Callable[[Page], None]
) -> None:
    cited = [citation(console_daemon, "manual.md", text) for text in (CITED, ARABIC)]
    pane = open_source(wide, cited)
    assert marked(pane) == CITED
    paragraph = pane.locator("p", has=wide.locator("mark"))
    expect(paragraph).to_have_text(f"Before it. {CITED} After it.")
    expect(pane.locator("mark")).to_be_in_viewport()
    expect(pane.get_by_role("heading", name="Bearings 🔩")).to_be_visible()
    expect(pane.locator(".source-place")).to_have_text("Manual 📕 › Bearings 🔩")
    screenshot("pane-text", wide)
    wide.keyboard.press("n")
    expect(pane.locator("mark")).to_have_text(ARABIC)
    assert pane.locator("p", has=wide.locator("mark")).evaluate("node => getComputedStyle(node).direction") == "rtl"
    screenshot("pane-right-to-left", wide)
    axe(wide)


def test_any_range_of_any_text_is_marked_exactly(wide: Page) -> None:
    random = Random(20)
    pieces = ["a", "é", "🔧", "👩‍🔧", "م", "ק", "\u0301", " ", "\n", "\n\n", " | ", "\u202e"]
    cases = []
    for _ in range(200):
        text = "".join(random.choices(pieces, k=60)).strip()
        at = random.randrange(1000)
        start = random.randrange(len(text))
        end = random.randrange(start, len(text)) + 1
        found = {"text": text, "start": at, "parts": encode(tuple(parts_of(text, at, [ChunkPlace(at, at + 999, ())])))}
        cases.append({"found": found, "cited": {"start": at + start, "end": at + end}})
    marks = wide.evaluate(
        """async (cases) => {
          const { rendered } = await import(`${document.documentElement.dataset.base}/source/text_source.js`);
          return cases.map(({ found, cited }) => {
            const box = document.createElement('div');
            box.append(...rendered(found, cited));
            for (const caption of box.querySelectorAll('caption')) caption.remove();
            return [box.textContent, [...box.querySelectorAll('mark')].map((each) => each.textContent).join('')];
          });
        }""",
        cases,
    )
    divider = re.compile(r"\s|\|")
    for case, (whole, marked_text) in zip(cases, marks, strict=True):
        text, first = case["found"]["text"], case["found"]["start"]
        cited = text[case["cited"]["start"] - first : case["cited"]["end"] - first]
        # Between parts, lines and cells there are no characters of the text.
        assert divider.sub("", whole.replace("⟨U+202E⟩", "\u202e")) == divider.sub("", text)
        assert divider.sub("", marked_text.replace("⟨U+202E⟩", "\u202e")) == divider.sub("", cited)


def test_the_text_goes_on_in_both_directions_and_the_page_stays_small(
    wide: Page, console_daemon: RunningDaemon
) -> None:
    pane = open_source(wide, [citation(console_daemon, "manual.md", CITED)])
    marked(pane)
    text = pane.get_by_role("region", name="Text of the document")
    for key, last in (("Home", "🛠️ first line of the manual 🛠️"), ("End", "The last line of the manual.")):
        wanted = text.get_by_text(last, exact=True)
        text.focus()
        for _ in range(60):
            if wanted.count():
                break
            ranges = text.locator(".source-ranges").inner_text()
            wide.keyboard.press(key)
            expect(text.locator(".source-ranges")).not_to_have_text(ranges, use_inner_text=True)
        expect(wanted).to_have_count(1)
        assert text.locator(".source-ranges > div").count() <= MOST_RANGES
    steps = [int(found.split()[1]) for found in text.locator("p").all_inner_texts() if found.startswith("Note ")]
    assert steps == list(range(steps[0], PARAGRAPHS))


def test_a_table_is_a_table_with_its_empty_cells(
    wide: Page, console_daemon: RunningDaemon, screenshot: Callable[..., Path], axe: Callable[[Page], None]
) -> None:
    pane = open_source(wide, [citation(console_daemon, "parts.md", "HL-1001 | Mechanical seal 🔩")])
    marked(pane)
    assert pane.locator("mark").all_text_contents() == ["HL-1001", "Mechanical seal 🔩"]
    table = pane.get_by_role("table", name="Table with 2 rows")
    assert table.get_by_role("columnheader").all_text_contents() == ["Part number", "Part", "Shelf", "Price"]
    assert table.locator("tbody tr").nth(1).locator("td").all_text_contents() == ["HL-1002", "", "A1", "87.50"]
    screenshot("pane-table", wide)
    axe(wide)


def test_boxes_are_on_the_page_where_the_box_says(
    wide: Page, console_daemon: RunningDaemon, screenshot: Callable[..., Path], axe: Callable[[Page], None]
) -> None:
    cited = citation(console_daemon, "manual.pdf", ON_PAPER)
    assert cited["page"] == 2
    pane = open_source(wide, [cited])
    pane.locator(".page-box").first.wait_for()
    where = {"collection": COLLECTION, "start": cited["start"], "end": cited["end"]}
    told = read_json(console_daemon, f"/documents/{cited['document_id']}/pages/2/boxes", where)["boxes"]
    lines: dict[float, list[dict[str, float]]] = {}
    for box in told:
        lines.setdefault(round(box["top"], 3), []).append(box)
    assert len(lines) == LINES

    def shown() -> list[list[float]]:
        found: list[list[float]] = pane.locator(".page-sheet").evaluate(
            """(sheet) => {
              const paper = sheet.querySelector('img').getBoundingClientRect();
              return [...sheet.querySelectorAll('.page-box')].map((box) => {
                const { left, top, right, bottom } = box.getBoundingClientRect();
                return [(left - paper.left) / paper.width, (top - paper.top) / paper.height,
                  (right - paper.left) / paper.width, (bottom - paper.top) / paper.height];
              });
            }"""
        )
        return found

    wanted = [
        pytest.approx(
            [least(box[side] for box in line) for side, least in zip(SIDES, (min, min, max, max), strict=True)],
            abs=0.001,
        )
        for line in lines.values()
    ]
    assert shown() == wanted
    expect(pane.locator(".page-box").first).to_be_in_viewport()
    expect(pane.get_by_role("img", name="Page 2 of manual.pdf")).to_be_visible()
    expect(pane.get_by_label("Page number")).to_have_value("2")
    expect(pane.locator("figcaption")).to_contain_text(ON_PAPER)
    screenshot("pane-page", wide)
    axe(wide)

    zoom = pane.locator(".page-sheet").bounding_box()
    pane.get_by_role("button", name="Zoom in").click()
    expect(pane.locator(".page-zoom")).to_have_text("125%")
    larger = pane.locator(".page-sheet").bounding_box()
    assert zoom is not None
    assert larger is not None
    assert larger["width"] == pytest.approx(1.25 * zoom["width"], abs=1)
    assert shown() == wanted
    wide.keyboard.press("0")
    wide.keyboard.press("ArrowRight")
    expect(pane.get_by_role("img", name="Page 3 of manual.pdf")).to_be_visible()
    expect(pane.locator(".page-box")).to_have_count(0)
    pane.get_by_role("button", name="Back to the citation").click()
    expect(pane.locator(".page-box")).to_have_count(LINES)

    for _ in range(3):  # the focus stays in what is shown
        wide.keyboard.press("t")
    assert marked(pane) == ON_PAPER
    expect(pane.get_by_role("button", name="Text", exact=True)).to_have_attribute("aria-pressed", "true")
    screenshot("pane-page-as-text", wide)


def test_a_range_over_two_pages_leads_from_one_to_the_other(wide: Page, console_daemon: RunningDaemon) -> None:
    cited = citation(console_daemon, "manual.pdf", "Close both.\n\nBearings\n\nIn step 0 of this page")
    pane = open_source(wide, [cited])
    expect(pane.get_by_role("img", name="Page 1 of manual.pdf")).to_be_visible()
    expect(pane.locator(".page-box")).to_have_count(1)
    pane.get_by_role("button", name="Continues on page 2").click()
    expect(pane.get_by_role("img", name="Page 2 of manual.pdf")).to_be_visible()
    expect(pane.locator(".page-box")).to_have_count(2)
    expect(pane.get_by_role("region", name="Pages of the document")).to_be_focused()


def test_a_cited_sentence_after_the_first_page_of_its_passage_is_found(
    wide: Page, console_daemon: RunningDaemon
) -> None:
    cited = citation(console_daemon, "manual.pdf", ON_PAPER)
    pane = open_source(wide, [{**cited, "page": 1}])
    expect(pane.get_by_role("img", name="Page 2 of manual.pdf")).to_be_visible()
    expect(pane.locator(".page-box")).to_have_count(LINES)
    expect(pane.locator(".source-page")).to_have_text("Page 2")


def test_what_is_not_in_the_document_any_more_is_not_marked(
    wide: Page, console_daemon: RunningDaemon, screenshot: Callable[..., Path]
) -> None:
    ingest(console_daemon.address, {"changed.txt": f"The first edition. {ON_PAPER}".encode()}, COLLECTION)
    cited = citation(console_daemon, "changed.txt", ON_PAPER)
    ingest(console_daemon.address, {"changed.txt": b"The second edition. Grease is not needed any more."}, COLLECTION)
    pane = open_source(wide, [cited])
    expect(pane.get_by_role("region", name="Text of the document")).to_contain_text("The second edition.")
    expect(pane.locator(".source-why")).to_contain_text(f"It was cited: “{ON_PAPER}”")
    expect(pane.locator("mark")).to_have_count(0)
    screenshot("pane-changed", wide)


def test_the_pane_is_reached_and_left_by_keyboard(wide: Page, console_daemon: RunningDaemon) -> None:
    cited = [citation(console_daemon, name, text) for name, text in (("manual.md", CITED), ("manual.pdf", ON_PAPER))]
    pane = open_source(wide, cited)
    expect(pane.get_by_role("heading", name="manual.md")).to_be_focused()
    expect(wide.locator("#live")).to_contain_text("Citation 1 of 2: manual.md.")
    assert marked(pane) == CITED
    pane.get_by_role("region", name="Text of the document").focus()
    for _ in range(2):
        wide.keyboard.press("n")
    expect(pane.get_by_role("heading", name="manual.md")).to_be_focused()
    pane.get_by_role("button", name="Next citation").press("Enter")
    expect(pane.get_by_role("heading", name="manual.pdf")).to_be_visible()
    expect(wide.locator("#live")).to_contain_text("Citation 2 of 2: manual.pdf, page 2.")
    assert wide.evaluate("window.shownAt") == 1
    expect(pane.locator(".page-box")).to_have_count(LINES)
    opened = pane.get_by_role("link", name="Open the document").get_attribute("href")
    at = f"at={cited[1]['start']}&end={cited[1]['end']}"
    assert opened == f"#/documents/{COLLECTION}/{cited[1]['document_id']}?{at}"
    with wide.expect_download() as download:
        pane.get_by_role("link", name="Download the original").click()
    assert Path(download.value.path()).read_bytes().startswith(b"%PDF-")
    assert download.value.suggested_filename == "manual.pdf"

    wide.context.grant_permissions(["clipboard-read", "clipboard-write"])
    pane.get_by_role("button", name="Copy the quote").click()
    expect(wide.locator("#notices")).to_contain_text("The quote was copied with its reference.")
    copied = wide.evaluate("navigator.clipboard.readText()")
    assert copied.split("\n")[:2] == [f"“{ON_PAPER}”", "— manual.pdf, Bearings, Page 2"]
    assert copied.endswith(f"/{opened}")

    edge = pane.get_by_role("separator", name="Width of the source")
    before = pane.bounding_box()
    edge.press("ArrowLeft")
    after = pane.bounding_box()
    assert before is not None
    assert after is not None
    assert after["width"] == before["width"] + 40
    wide.keyboard.press("Escape")
    expect(pane).to_be_hidden()
    expect(wide.locator(".brand")).to_be_focused()
    assert wide.evaluate("window.shownAt") is None


def test_on_a_phone_the_pane_is_a_sheet(
    open_page: Pages, console_daemon: RunningDaemon, screenshot: Callable[..., Path], documents: None
) -> None:
    phone = open_page("/", width=360, height=740)
    cited = [citation(console_daemon, name, text) for name, text in (("manual.pdf", ON_PAPER), ("manual.md", CITED))]
    pane = open_source(phone, cited)
    expect(pane.locator(".page-box")).to_have_count(LINES)
    expect(phone.get_by_role("dialog", name="manual.pdf")).to_be_visible()
    assert pane.bounding_box() == {"x": 0, "y": 0, "width": 360, "height": 740}
    assert phone.locator("main").evaluate("node => node.inert")
    assert widest_overflow(phone) == 0
    screenshot("pane-page-360", phone)
    pane.get_by_role("button", name="Next citation").click()
    assert marked(pane) == CITED
    screenshot("pane-text-360", phone)
    phone.go_back()
    expect(pane).to_be_hidden()
    pane = open_source(phone, cited)
    expect(pane.locator(".page-box")).to_have_count(LINES)
    pane.get_by_role("button", name="Close the source").click()
    expect(pane).to_be_hidden()
    assert phone.evaluate("location.hash") == "#/ask"
    assert not phone.locator("main").evaluate("node => node.inert")
    expect(phone.locator(".brand")).to_be_focused()


def test_hostile_names_and_texts_are_shown_as_text(
    wide: Page, console_daemon: RunningDaemon, screenshot: Callable[..., Path]
) -> None:
    name = HOSTILE.replace("\u202e", "") + ".txt"
    cited = citation(console_daemon, name, "says 12 bar.")
    pane = open_source(wide, [{**cited, "document": HOSTILE * 100}])
    assert marked(pane) == "says 12 bar."
    expect(pane.get_by_role("heading").first).to_contain_text(HOSTILE.replace("\u202e", "⟨U+202E⟩"))
    expect(pane.locator("p", has=wide.locator("mark"))).to_contain_text(HOSTILE.replace("\u202e", "⟨U+202E⟩"))
    assert pane.locator("img, script").count() == 0
    assert pane.locator("header").evaluate("node => node.scrollWidth <= node.clientWidth")
    screenshot("pane-hostile", wide)


def test_without_its_original_a_pdf_is_shown_as_text_and_says_why(
    open_page: Pages, tmp_path: Path, screenshot: Callable[..., Path]
) -> None:
    config = f"{CONSOLE}[ingest]\nkeep_originals = false\n"
    with start_daemon(tmp_path / "data", tmp_path / "log", config) as running:
        ingest(running.address, {"manual.pdf": manual()})
        cited = citation(running, "manual.pdf", ON_PAPER, "default")
        page = open_page("/", daemon=running)
        pane = open_source(page, [cited])
        assert marked(pane) == ON_PAPER
        expect(pane.locator(".source-why")).to_contain_text("the box does not keep the original of this document")
        expect(pane.get_by_role("link", name="Download the original")).to_have_count(0)
        screenshot("pane-no-original", page)
        page.close()
