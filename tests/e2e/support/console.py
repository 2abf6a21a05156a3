"""What a person does in the console: asks, and follows an answer to its words in a document."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pypdfium2
from playwright.sync_api import Locator, Page, expect

from tests.e2e.support.running_daemon import SAMPLES

QUESTIONS: Final = (
    "How often must the pump bearings be greased?",
    "When must a hydrogen sulphide value be reported to the shift leader?",
    "Which wires stay live when the main breaker is off?",
    "How many litres of oil does the engine of the generator take?",
    "What is the delivery time of an impeller?",
)
PDF_QUESTION: Final = "What is the highest pressure allowed in the rising main?"
"""The answer is a sentence over two lines of a PDF among the sample documents."""

_MOST_WAIT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class PageMemory:
    """What a page holds after a garbage collection."""

    nodes: int
    listeners: int


def question_field(page: Page) -> Locator:
    return page.get_by_role("main").get_by_role("textbox", name="Question")


def ask(page: Page, question: str) -> Locator:
    field = question_field(page)
    field.fill(question)
    field.press("Enter")
    answer = page.get_by_role("article", name=question).last
    expect(answer.get_by_role("button", name="Ask again")).to_be_visible(timeout=_MOST_WAIT_MS)
    return answer


def memory(page: Page) -> PageMemory:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found = {each["name"]: int(each["value"]) for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return PageMemory(found["Nodes"], found["JSEventListeners"])


def follow_to_the_page(page: Page) -> tuple[str, str, int, str]:
    """Clicks on the sentence of the answer that is shown."""
    sentence = page.get_by_role("article").last.locator(".answer-cited").first
    expect(sentence).to_be_visible()
    quoted = one_line(sentence.inner_text())
    sentence.click()
    pane = page.get_by_role("complementary")
    picture = pane.get_by_role("img", name=re.compile(r"\.pdf"))
    expect(picture).to_be_visible()
    expect(pane.locator(".page-box").first).to_be_in_viewport()
    document = pane.get_by_role("heading", level=2).inner_text()
    number = int(pane.get_by_role("spinbutton").input_value())
    # The picture is drawn, and each box has an area within it; as shares of its width and height.
    boxes: list[list[float]] | None = picture.evaluate(
        """picture => {
            const sheet = picture.getBoundingClientRect();
            const boxes = [...picture.parentElement.querySelectorAll('.page-box')]
                .map(each => each.getBoundingClientRect());
            const within = each => each.width > 0 && each.height > 0 && each.left >= sheet.left - 1
                && each.right <= sheet.right + 1 && each.top >= sheet.top - 1 && each.bottom <= sheet.bottom + 1;
            return picture.naturalWidth > 0 && boxes.every(within) ? boxes.map(each => [
                (each.left - sheet.left) / sheet.width, (each.top - sheet.top) / sheet.height,
                (each.right - sheet.left) / sheet.width, (each.bottom - sheet.top) / sheet.height,
            ]) : null;
        }"""
    )
    assert boxes, "the boxes are not within the picture of the page"
    return quoted, document, number, words_under(SAMPLES / document, number, boxes)


def words_under(document: Path, page: int, boxes: list[list[float]]) -> str:
    """Returns the words of a PDF under boxes: left, top, right and bottom as shares of a page, from 1."""
    with pypdfium2.PdfDocument(document) as pdf:
        sheet = pdf[page - 1]
        width, height = sheet.get_size()
        text = sheet.get_textpage()
        found = [
            text.get_text_bounded(left * width, height * (1 - bottom), right * width, height * (1 - top))
            for left, top, right, bottom in boxes
        ]
    return one_line(" ".join(found))


def one_line(text: str) -> str:
    return " ".join(text.split())
