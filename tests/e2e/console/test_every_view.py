"""Every view and every tab in it: for everybody (WCAG 2.2 AA in both themes), by keyboard, on a phone and on a wall."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from edge_rag.client import Client
from tests.e2e.console.conftest import Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.console import QUESTIONS, ask
from tests.e2e.support.keyboard import walk
from tests.e2e.support.running_daemon import RunningDaemon

Screenshot = Callable[..., Path]
Axe = Callable[[Page], None]

VIEWS = {
    "ask": "/#/ask",
    "documents": "/#/documents/default",
    "document": "/#/documents/default/operating-manual.pdf",
    "box": "/#/box",
    "access": "/#/access",
}
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
HOSTILE_NAME = f"{MARKUP} \u200f {'x' * 900}.txt".replace("/", "∕")
HOSTILE_TEXT = f"{MARKUP} is afraid of \u202eredaer neercs\u202c. {'y' * 10_000}"
HOSTILE_METADATA = {"author": f"{MARKUP}\u202e\u2066", "site": "z" * 900}
TABS = ("text", "chunks", "details")
WIDTHS = (2560, 1024, 360)
LANGUAGES = ("de", "es", "fr")


def is_loaded(page: Page) -> None:
    """Waits until the view shows what it loads."""
    main = page.get_by_role("main")
    expect(main.get_by_role("heading", level=1).first).to_be_attached()
    expect(main.locator(".loading:visible")).to_have_count(0)
    expect(main.locator("[aria-busy=true]:visible")).to_have_count(0)
    expect(main.locator(".tab-content:not(:has(h2, h3, p, li, td))")).to_have_count(0)
    # Rows of a list have the height that their width needs.
    page.wait_for_function(
        """() => [...document.querySelectorAll('.virtual-rows > li')]
            .every(row => row.scrollHeight <= row.clientHeight + 1)"""
    )


def tabs(page: Page) -> Iterator[str]:
    """Opens one tab of the view after the other and yields their names; once an empty one for a view without tabs."""
    is_loaded(page)
    heads = page.get_by_role("main").get_by_role("tab")
    for number in range(heads.count()):
        heads.nth(number).click()
        is_loaded(page)
        yield heads.nth(number).inner_text().lower().replace(" ", "-")
    if heads.count() == 0:
        yield ""


@pytest.mark.parametrize("view", VIEWS)
def test_it_is_for_everybody_at_every_width(open_page: Pages, axe: Axe, screenshot: Screenshot, view: str) -> None:
    page = open_page(VIEWS[view])
    for tab in tabs(page):
        name = "-".join(part for part in (view, tab) if part)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 1440 if width > 1280 else 800})
            is_loaded(page)
            assert widest_overflow(page) == 0, (name, width)
            screenshot(f"{name}-{width}", page)
        axe(page)
        page.set_viewport_size({"width": 1280, "height": 800})
        axe(page)
        assert "undefined" not in page.inner_text("main"), name
        assert "NaN" not in page.inner_text("main"), name
    page.emulate_media(color_scheme="dark")
    screenshot(f"{view}-dark", page)


@pytest.mark.parametrize("view", VIEWS)
def test_the_keyboard_reaches_every_control(open_page: Pages, view: str) -> None:
    page = open_page(VIEWS[view])
    for tab in tabs(page):
        walked = walk(page)
        assert (walked.missed, walked.unmarked, walked.hidden) == ([], [], []), tab


@pytest.mark.parametrize("width", [1280, 360])
def test_an_answer_and_its_source_are_for_everybody_and_reached_by_keyboard(
    open_page: Pages, axe: Axe, width: int
) -> None:
    page = open_page(width=width)
    for question in QUESTIONS[:3]:
        answer = ask(page, question)

    def axe_of_all() -> None:
        # What bar and composer cover in part can be scrolled from below them; axe takes it for too small a target.
        stick = (
            "position => ['.top', '.composer'].forEach(each => document.querySelector(each).style.position = position)"
        )
        page.evaluate(stick, "static")
        axe(page)
        page.evaluate(stick, "")

    axe_of_all()
    walked = walk(page)
    assert (walked.missed, walked.unmarked, walked.hidden) == ([], [], [])
    answer.get_by_role("button", name="Source 1").first.click()
    expect(page.locator("#aside mark").first).to_be_visible()
    axe_of_all()
    if width > 800:
        walked = walk(page)
        assert (walked.missed, walked.unmarked, walked.hidden) == ([], [], [])


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_language_breaks_the_layout(open_page: Pages, screenshot: Screenshot, language: str) -> None:
    page = open_page(None, language=language, width=360)
    for view, path in VIEWS.items():
        page.goto(path)
        for tab in tabs(page):
            assert widest_overflow(page) == 0, (view, tab)
            text = page.inner_text("body")
            assert "undefined" not in text
            assert "NaN" not in text
        screenshot(f"{view}-{language}-360", page)


def test_hostile_documents_are_texts_everywhere(open_page: Pages, console_daemon: RunningDaemon) -> None:
    page = open_page(None, width=360)
    page.on("dialog", lambda dialog: open_page.watch(page).report(f"a dialog: {dialog.message}"))
    with Client(console_daemon.address) as client:
        text = BytesIO(HOSTILE_TEXT.encode())
        client.ingest(HOSTILE_NAME, lambda: text, collection="hostile", metadata=HOSTILE_METADATA)
        document = client.document(HOSTILE_NAME, collection="hostile").info.document_id
    question = f"Who is {MARKUP} afraid of?"
    for path in ("/#/documents/hostile", *(f"/#/documents/hostile/{document}?tab={tab}" for tab in TABS)):
        page.goto(path)
        is_loaded(page)
        expect(page.get_by_role("main")).to_contain_text("<script>alert(1)")
        assert widest_overflow(page) == 0, path
    expect(page.get_by_role("main")).to_contain_text("⟨U+202E⟩")
    page.goto("/#/ask?collection=hostile")
    answer = ask(page, question)
    expect(answer).to_contain_text(MARKUP)
    answer.get_by_role("button", name="Source 1").first.click()
    expect(page.locator("#aside mark").first).to_contain_text(MARKUP)
    assert widest_overflow(page) == 0
    page.goto("/#/box?tab=requests")
    is_loaded(page)
    # Markup that was taken for markup would have made elements.
    assert page.locator("script").count() == 1
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("[onclick], [onerror], [onload]").count() == 0
