"""Chunks of a document, test questions and settings of a collection, as operators see and change them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.e2e.console.conftest import Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents

Screenshot = Callable[..., Path]

QUESTION = "How often must the pump bearings be greased?"
HOSTILE = "<script>alert(1)</script>\u202efdp.exe"
SET = f"question;document;text\n{QUESTION};lubrication-schedule.md;2,000\nWhere is the ferry?;{HOSTILE};\n"

MOUNT = """async ([file, name, options]) => {
  const { [name]: panel } = await import(`${document.documentElement.dataset.base}/documents/${file}`);
  const place = document.createElement('div');
  place.dataset.panel = name;
  document.getElementById('main').replaceChildren(place);
  await panel(place, { ...options, signal: new AbortController().signal });
}"""
"""Shows a panel in the place of a view."""


@pytest.fixture
def plant(console_daemon: RunningDaemon, request: pytest.FixtureRequest) -> str:
    """Name of a collection of this test's own with two of the sample documents."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60]
    samples = sample_documents()
    ingest(console_daemon.address, {each: samples[each] for each in ("lubrication-schedule.md", "parts-list.md")}, name)
    return name


def call(daemon: RunningDaemon, method: str, path: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(f"{daemon.http}/api/v1/{path}", data, headers, method=method)) as response:
        return json.load(response)


def mount(page: Page, file: str, name: str, **options: str) -> None:
    expect(page.locator("main h1, main textarea, main .empty, main [data-panel]").first).to_be_visible()
    page.evaluate(MOUNT, [file, name, options])


@pytest.mark.parametrize("width", [360, 1280])
def test_a_document_shows_where_it_was_cut_and_what_is_indexed(
    open_page: Pages, axe: Callable[[Page], None], screenshot: Screenshot, console_daemon: RunningDaemon, width: int
) -> None:
    found = call(console_daemon, "GET", "collections/default/chunks?document=operating-manual.pdf")
    assert isinstance(found, dict)
    page = open_page(width=width)
    mount(page, "chunks.js", "chunksPanel", collection="default", document=found["document"]["id"])
    chunks = page.get_by_role("list", name="Chunks").locator(":scope > li")
    expect(chunks).to_have_count(len(found["chunks"]))
    for shown, chunk in zip(chunks.all()[:5], found["chunks"], strict=False):
        assert shown.locator(".chunk-text").text_content() == chunk["text"]
        text = shown.inner_text()
        assert f"page {chunk['page']}" in text
        assert f"{chunk['tokens']} tokens" in text
        assert "vector indexed" in text
        assert all(heading in text for heading in chunk["headings"])
    first, second = (each.evaluate("each => getComputedStyle(each).backgroundColor") for each in chunks.all()[:2])
    assert first != second
    chunks.first.locator("summary").focus()
    page.keyboard.press("Enter")
    word = found["chunks"][0]["text"].split()[0].strip(".,")
    expect(chunks.first.get_by_role("rowheader", name=word, exact=True)).to_be_visible()
    assert widest_overflow(page) == 0
    axe(page)
    screenshot(f"chunks-{width}", page)


def test_chunks_of_a_long_document_come_in_pages(open_page: Pages, console_daemon: RunningDaemon, plant: str) -> None:
    parts = "\n\n".join(f"# Part {number}\n\nIt weighs {number} kg." for number in range(120))
    ingest(console_daemon.address, {"parts.md": parts.encode()}, plant)
    page = open_page()
    mount(page, "chunks.js", "chunksPanel", collection=plant, document="parts.md")
    texts = page.locator(".chunk-text")
    where = page.get_by_role("navigation", name="Chunks")
    seen = []
    for shown in ("1–50 of 120", "51–100 of 120", "101–120 of 120"):
        expect(where).to_contain_text(shown)
        seen += texts.all_text_contents()
        where.get_by_role("button", name="Next").press("Enter")
    assert seen == [f"It weighs {number} kg." for number in range(120)]
    where.get_by_role("button", name="Back").click()
    expect(where).to_contain_text("51–100 of 120")
    expect(page.get_by_role("list", name="Chunks")).to_be_focused()


def test_test_questions_are_uploaded_run_and_compared(
    open_page: Pages, axe: Callable[[Page], None], screenshot: Screenshot, console_daemon: RunningDaemon, plant: str
) -> None:
    page = open_page()
    mount(page, "test_questions.js", "testQuestionsPanel", collection=plant)
    expect(page.get_by_text("No test questions yet")).to_be_visible()
    expect(page.get_by_role("button", name="Run all")).to_be_disabled()
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Upload questions").click()
    chosen.value.set_files(FilePayload(name="set.csv", mimeType="text/csv", buffer=SET.encode()))
    items = page.get_by_role("list", name="Test questions").locator(":scope > li")
    expect(items).to_have_count(2)
    expect(page.get_by_text("Not run yet.")).to_be_visible()
    expect(items.nth(1)).to_contain_text("<script>alert(1)</script>⟨U+202E⟩fdp.exe")
    expect(items.nth(1)).to_contain_text("no such document")

    page.get_by_role("button", name="Run all").click()
    expect(page.get_by_text("Last run")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("All questions were asked: 50% found first.")
    expect(items.filter(has_text=QUESTION)).to_contain_text("rank 1")
    expect(items.filter(has_text="ferry")).to_contain_text("not found")
    measures = page.locator(".measures > div")
    assert [" ".join(each.split()) for each in measures.all_text_contents()] == [
        "Found first50%", "In the first 550%", "In the first 1050%", "Mean reciprocal rank0.5",
    ]  # fmt: skip
    items.filter(has_text=QUESTION).locator("summary").press("Enter")
    hits = items.filter(has_text=QUESTION).locator(".hits > li")
    expect(hits).to_have_count(3)
    expect(hits.first).to_contain_text("expected")
    expect(hits.first).to_contain_text(re.compile(r"Meaning\s*rank \d+ \(0\.\d+\)"))
    expect(hits.first).to_contain_text(re.compile(r"Words\s*rank \d+"))
    expect(hits.first.get_by_role("link", name="lubrication-schedule.md")).to_have_attribute(
        "href", re.compile(rf"^#/documents/{plant}/\w+\?at=\d+&end=\d+$")
    )
    axe(page)
    screenshot("test-questions", page)
    page.set_viewport_size({"width": 360, "height": 800})
    assert widest_overflow(page) == 0
    page.set_viewport_size({"width": 1280, "height": 800})

    call(console_daemon, "DELETE", f"collections/{plant}/documents/lubrication-schedule.md")
    page.get_by_role("button", name="Run all").click()
    worse = items.filter(has_text=QUESTION)
    expect(worse).to_contain_text("▼ before: rank 1")
    expect(page.get_by_text("1 worse, 1 the same")).to_be_visible()
    expect(measures.first).to_contain_text("0%▼ before: 50%")
    expect(items.first).to_contain_text(QUESTION)


def test_a_question_is_added_and_deleted_by_keyboard(open_page: Pages, plant: str) -> None:
    page = open_page(width=360)
    mount(page, "test_questions.js", "testQuestionsPanel", collection=plant)
    page.get_by_role("button", name="Add a question").press("Enter")
    dialog = page.get_by_role("dialog", name="Add a question")
    dialog.get_by_role("button", name="Add a question").press("Enter")
    expect(dialog.get_by_label("Question", exact=True)).to_have_accessible_description(re.compile("Needed"))
    dialog.get_by_label("Question", exact=True).fill(QUESTION)
    dialog.get_by_label("Name of the document").fill("lubrication-schedule.md")
    dialog.get_by_role("button", name="Add a question").press("Enter")
    expect(dialog).to_be_hidden()
    item = page.get_by_role("list", name="Test questions").locator(":scope > li").filter(has_text=QUESTION)
    expect(item).to_contain_text("lubrication-schedule.md")
    assert widest_overflow(page) == 0
    item.get_by_role("button", name="Delete the question").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Delete the question").press("Enter")
    expect(page.get_by_text("No test questions yet")).to_be_visible()


def test_a_run_that_is_stopped_keeps_nothing(open_page: Pages, console_daemon: RunningDaemon, plant: str) -> None:
    page = open_page()
    mount(page, "test_questions.js", "testQuestionsPanel", collection=plant)
    lines = "\n".join(f"Question {number}?,parts-list.md" for number in range(500))
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Upload questions").click()
    chosen.value.set_files(FilePayload(name="set.csv", mimeType="text/csv", buffer=lines.encode()))
    expect(page.locator("#live")).to_contain_text("500 test questions now")
    page.get_by_role("button", name="Run all").click()
    expect(page.get_by_text(re.compile(r"^\d+ of 500 asked$"))).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#live")).to_contain_text("Stopped; nothing of this run is kept.")
    expect(page.get_by_text("Not run yet.")).to_be_visible()
    expect(page.locator(".questions > li")).to_have_count(50)


def test_readers_see_and_run_questions_and_change_nothing(
    open_page: Pages, console_daemon: RunningDaemon, plant: str
) -> None:
    call(console_daemon, "POST", f"collections/{plant}/test-questions", {"question": QUESTION, "document": "a.md"})
    page = open_page(None)
    identity = {**cast(dict[str, object], call(console_daemon, "GET", "whoami")), "roles": ["reader"]}
    page.route("**/api/v1/whoami", lambda route: route.fulfill(json=identity))
    page.goto("/")
    mount(page, "test_questions.js", "testQuestionsPanel", collection=plant)
    expect(page.get_by_role("list", name="Test questions").locator(":scope > li")).to_contain_text(QUESTION)
    assert [each.text_content() for each in page.locator("main").get_by_role("button").all()] == ["Run all"]
    mount(page, "settings.js", "settingsPanel", collection=plant)
    expect(page.locator("main")).to_have_text("Only administrators change settings.")


def test_settings_are_changed_with_their_effect(
    open_page: Pages, axe: Callable[[Page], None], screenshot: Screenshot, console_daemon: RunningDaemon, plant: str
) -> None:
    page = open_page()
    mount(page, "settings.js", "settingsPanel", collection=plant)
    page.get_by_label("Title").fill("The plant")
    page.get_by_label("Weight of words").fill("2.5")
    page.get_by_label("Size of chunks, tokens").fill("64")
    page.get_by_label("Show only the best").uncheck()
    page.get_by_label("Boost of recent documents").fill("1")
    page.get_by_label("Boosts by metadata").fill("source = official * 2\nyear = 2020 * 0.5")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator("#live")).to_contain_text("The size of chunks is that of documents to come.")
    found = call(console_daemon, "GET", f"collections/{plant}")
    assert isinstance(found, dict)
    settings = found["collection"]["settings"]
    assert settings["title"] == "The plant"
    assert settings["fusion"] == {"dense": 1, "lexical": 2.5, "k": 20}
    assert (settings["chunk_tokens"], settings["drop_duplicates"]) == (64, False)
    assert settings["recency"] == {"key": None, "half_life_days": 180, "weight": 1}
    assert settings["boosts"] == [
        {"key": "source", "value": "official", "factor": 2},
        {"key": "year", "value": 2020, "factor": 0.5},
    ]
    axe(page)
    screenshot("settings", page)

    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator("#live")).to_contain_text("Nothing was changed.")
    page.get_by_label("Boosts by metadata").fill("official twice")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.get_by_label("Boosts by metadata")).to_be_focused()
    expect(page.get_by_label("Boosts by metadata")).to_have_attribute("aria-invalid", "true")


def test_what_the_box_refuses_is_said_at_its_field(open_page: Pages, plant: str) -> None:
    page = open_page(width=360)
    open_page.watch(page).allow(r"status of 4\d\d")
    mount(page, "settings.js", "settingsPanel", collection=plant)
    page.get_by_label("Weight of meaning").fill("0")
    page.get_by_label("Weight of words").fill("0")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator(".notice.error")).to_be_visible()
    page.get_by_label("Boosts by metadata").fill("no key! = 1 * 2")
    page.get_by_label("Weight of words").fill("1")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.get_by_label("Boosts by metadata")).to_have_accessible_description(re.compile("boosts"))
    page.get_by_label("Boosts by metadata").fill("")
    page.get_by_label("Vector index").select_option("On the Milvus server")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.locator("#live")).to_contain_text("no Milvus is configured")
    assert widest_overflow(page) == 0


def test_a_collection_is_deleted_once_its_name_is_typed(
    open_page: Pages, console_daemon: RunningDaemon, plant: str
) -> None:
    page = open_page()
    mount(page, "settings.js", "settingsPanel", collection=plant)
    page.get_by_role("button", name="Delete the collection").click()
    dialog = page.get_by_role("dialog", name="Delete the collection")
    erase = dialog.get_by_role("button", name="Delete the collection")
    erase.click()
    expect(dialog).to_contain_text("That is another name.")
    dialog.get_by_label(f"Type {plant}").fill(plant)
    erase.click()
    expect(page.locator("#live")).to_contain_text(f"{plant} was deleted.")
    found = call(console_daemon, "GET", "collections")
    assert isinstance(found, dict)
    assert plant not in {each["name"] for each in found["collections"]}
