"""From a question to the very words in the document: in text and on a PDF's page, by pointer and by keyboard."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.console.conftest import CONSOLE, Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.console import PDF_QUESTION, QUESTIONS, ask, follow_to_the_page, memory
from tests.e2e.support.keyboard import announced, listen
from tests.e2e.support.running_daemon import ingest, sample_documents, start_daemon

TEXT_QUESTION = "How often must the pump bearings be greased?"
TEXT_QUOTE = (
    "The pump bearings must be greased every 2,000 operating hours or every three months, whichever comes first."
)

Screenshot = Callable[..., Path]


def open_source(page: Page, answer: Locator) -> Locator:
    answer.get_by_role("button", name=re.compile("^Source 1")).first.click()
    pane = page.get_by_role("complementary").or_(page.get_by_role("dialog"))
    expect(pane).to_be_visible()
    return pane


def choose_mode(page: Page, mode: str) -> None:
    """Chooses how answers are written; quoted ones of one point, which needs no heading above it."""
    page.get_by_label("Answer", exact=True).select_option(mode)
    if mode == "quote":
        page.get_by_label("Sentences, at most").select_option("1")


@pytest.mark.parametrize("width", [360, 1024, 2560])
def test_a_question_leads_to_the_marked_words_of_a_text(open_page: Pages, screenshot: Screenshot, width: int) -> None:
    page = open_page(width=width, height=1440 if width == 2560 else 800)
    choose_mode(page, "quote")
    answer = ask(page, TEXT_QUESTION)
    expect(answer).to_contain_text(TEXT_QUOTE)
    assert widest_overflow(page) == 0
    screenshot(f"answer-{width}", page)
    pane = open_source(page, answer)
    expect(pane).to_contain_text("lubrication-schedule.md")
    mark = pane.locator("mark")
    expect(mark.first).to_be_in_viewport()
    assert "".join(mark.all_text_contents()) == TEXT_QUOTE
    expect(pane.get_by_role("heading", name="Motors")).to_be_attached()
    assert widest_overflow(page) == 0
    screenshot(f"source-text-{width}", page)
    page.keyboard.press("Escape")
    expect(pane).to_be_hidden()
    expect(answer.get_by_role("button", name=re.compile("^Source 1"))).to_be_focused()


@pytest.mark.parametrize("width", [360, 1024, 2560])
def test_a_question_leads_to_the_marked_line_on_a_page(open_page: Pages, screenshot: Screenshot, width: int) -> None:
    page = open_page(width=width, height=1440 if width == 2560 else 800)
    choose_mode(page, "quote")
    answer = ask(page, PDF_QUESTION)
    expect(answer).to_contain_text("8 bar")
    pane = open_source(page, answer)
    picture = pane.get_by_role("img", name=re.compile("operating-manual.pdf"))
    expect(picture).to_be_visible()
    expect(pane.locator(".page-box").first).to_be_in_viewport()
    drawn = picture.evaluate("each => [each.naturalWidth, each.complete]")
    assert drawn[0] > 300
    assert drawn[1]
    # The box lies on the picture, and is as high as a line of text, not as a paragraph.
    box, sheet = pane.locator(".page-box").first.bounding_box(), picture.bounding_box()
    assert box is not None
    assert sheet is not None
    assert sheet["x"] <= box["x"] <= box["x"] + box["width"] <= sheet["x"] + sheet["width"] + 1
    assert 0.005 < box["height"] / sheet["height"] < 0.05
    assert widest_overflow(page) == 0
    screenshot(f"source-page-{width}", page)


def test_a_new_user_comes_from_a_question_to_the_marked_line_of_a_pdf(open_page: Pages, tmp_path: Path) -> None:
    """What comes after ``scripts/quickstart``, with the models that everybody has then and no setting changed."""
    with start_daemon(tmp_path / "data", tmp_path / "log", CONSOLE, models={}) as daemon:
        ingest(daemon.address, sample_documents())
        page = open_page(None, daemon=daemon)
        page.goto(daemon.http)
        ask(page, PDF_QUESTION)
        quoted, document, number, marked = follow_to_the_page(page)
    assert (document, number) == ("operating-manual.pdf", 2)
    assert marked == quoted == "The highest pressure allowed in the rising main is 8 bar."


@pytest.mark.parametrize("mode", ["quote", "cite", "free"])
def test_screen_readers_are_told_whole_sentences(page: Page, mode: str) -> None:
    choose_mode(page, mode)
    listen(page)
    answer = ask(page, TEXT_QUESTION)
    page.wait_for_function("() => window.announced.length >= 2 || window.announced[0]?.startsWith('I could not')")
    told = announced(page)
    assert [text for text in told if not re.search(r"[.!?…:]['\"”)]*$", text)] == []
    shown = re.sub(r"\s+", " ", answer.inner_text())
    assert re.sub(r"\s+", " ", told[0]) in shown
    # What is read aloud is not read a second time as it streams.
    assert answer.locator("[aria-live]").count() == 0


def test_a_follow_up_is_asked_of_the_document_just_cited(page: Page, screenshot: Screenshot) -> None:
    choose_mode(page, "quote")
    first = ask(page, TEXT_QUESTION)
    first.get_by_role("button", name="Only in lubrication-schedule.md").click()
    second = ask(page, "How many litres of oil does the engine take?")
    expect(second).to_contain_text("18 litres")
    expect(second).to_contain_text("lubrication-schedule.md")
    assert page.get_by_role("article").count() == 2
    screenshot("follow-up")
    # Both are still there after the page was loaded again.
    page.reload()
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.get_by_role("article").first).to_contain_text(TEXT_QUOTE)


def test_a_page_holds_no_more_after_very_many_answers(page: Page) -> None:
    """A conversation at its bounds, as 1,000 questions leave it: more questions change nothing of its size."""
    choose_mode(page, "quote")
    ask(page, QUESTIONS[0])
    grown = page.evaluate(
        """() => {
            const key = Object.keys(localStorage).find(each => /^edge-rag\\.conversation\\./.test(each));
            const kept = JSON.parse(localStorage.getItem(key));
            const [turn] = kept.turns;
            kept.turns = Array.from({ length: 200 }, () => ({ ...turn, id: crypto.randomUUID() }));
            localStorage.setItem(key, JSON.stringify(kept));
            return kept.turns.length;
        }"""
    )
    page.reload()
    expect(page.get_by_role("article").first).to_be_visible()
    most = page.get_by_role("article").count()
    assert 0 < most < grown
    sizes = []
    for number in range(12):
        ask(page, QUESTIONS[number % len(QUESTIONS)])
        if number >= 3:
            sizes.append(memory(page))
    assert page.get_by_role("article").count() <= most + 1
    nodes = [each.nodes for each in sizes]
    assert max(nodes) <= 1.1 * nodes[0]
    assert max(each.listeners for each in sizes) <= 1.1 * sizes[0].listeners
    kept = page.evaluate(
        """() => Object.entries(localStorage)
            .filter(([key]) => /^edge-rag\\.conversation\\./.test(key))
            .map(([, value]) => JSON.parse(value).turns.length)"""
    )
    assert sum(kept) <= 200
