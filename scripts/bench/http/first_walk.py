"""The first way of a new user: from a fresh clone to the marked line of a PDF, without reading anything.

    python -m scripts.bench.http.first_walk [--question "..."] [--json]

for example with ``--question "At what level does the overflow into the brook begin?"``

Clones this repository (what is committed) into a temporary folder, runs `scripts/quickstart` there, opens the address
that it prints in Chromium, asks, clicks on the answer's sentence, and waits for the page of the PDF with boxes over the
cited words; exits with 1 if that is not reached, or if other words than the sentence's are under the boxes. Tells the
seconds of each step, and keeps what was seen in build/console/first-walk-*. The daemon is stopped and the clone removed
in the end, also after Ctrl-C. Takes minutes, as the installation does. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pypdfium2
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.support.browser import SCREENSHOTS, browser_page, chromium, keep_screenshot
from tests.e2e.support.running_daemon import ROOT, SAMPLES

QUESTION: Final = "What is the highest pressure allowed in the rising main?"
"""The answer is a sentence over two lines of a PDF among the sample documents."""

NAME: Final = "first-walk"
"""What the files begin with that show what was seen."""

_STOP_S: Final = 60


class WalkFailed(Exception):
    """A step did not lead to the next one; says why."""


@dataclass(slots=True)
class Walk:
    """What was done, and what it led to.

    Attributes:
        question: What was asked.
        sentence: The sentence of the answer that was clicked on.
        document: Name of the document that it led to.
        page: Number of the page that was shown, from 1.
        marked: The document's words under the boxes.
        seconds: Duration of each step, in their order.
        seen: Files that show what was seen after each step.
    """

    question: str
    sentence: str = ""
    document: str = ""
    page: int = 0
    marked: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Takes the time of a step."""
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began

    def see(self, page: Page) -> None:
        """Keeps what a page shows after the last step."""
        self.seen.append(str(keep_screenshot(page, f"{NAME}-{list(self.seconds)[-1]}")))


def one_line(text: str) -> str:
    """Returns a text with single spaces between its words."""
    return " ".join(text.split())


def ask_and_follow(page: Page, address: str, walk: Walk) -> None:
    """Opens the console, asks, and follows the answer's first sentence to the line of a PDF among the sample documents.

    Args:
        page: An empty page.
        address: Of the console.
        walk: Gets what was asked, seen and found.

    Raises:
        WalkFailed: The boxes are not on the picture of the page, or other words than the sentence's are under them.
        AssertionError: A thing that was waited for did not come.
        playwright.sync_api.Error: The address cannot be opened.
    """
    with walk.step("console"):
        page.goto(address)
        question = page.get_by_role("main").get_by_role("textbox", name="Question")
        expect(question).to_be_editable()
    walk.see(page)
    with walk.step("answer"):
        question.click()
        page.keyboard.type(walk.question)
        page.get_by_role("button", name="Ask", exact=True).click()
        answer = page.get_by_role("article", name=walk.question)
        expect(answer.get_by_role("button", name="Ask again")).to_be_visible()
        sentence = answer.locator(".answer-cited").first
        expect(sentence).to_be_visible()
    walk.see(page)
    walk.sentence = one_line(sentence.inner_text())
    with walk.step("line"):
        sentence.click()
        pane = page.get_by_role("complementary")
        picture = pane.get_by_role("img", name=re.compile(r"\.pdf"))
        expect(picture).to_be_visible()
        expect(pane.locator(".page-box").first).to_be_in_viewport()
    walk.see(page)
    walk.document = pane.get_by_role("heading", level=2).inner_text()
    walk.page = int(pane.get_by_role("spinbutton").input_value())
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
    if not boxes:
        raise WalkFailed("the boxes are not within the picture of the page")
    walk.marked = words_under(SAMPLES / walk.document, walk.page, boxes)
    if walk.marked != walk.sentence:
        raise WalkFailed(f"the sentence is {walk.sentence!r}, but under the boxes is {walk.marked!r}")


def words_under(document: Path, page: int, boxes: list[list[float]]) -> str:
    """Returns what a PDF itself has under boxes on a page, whose number is from 1.

    Args:
        document: The file.
        page: Number of the page, from 1.
        boxes: Left, top, right and bottom of each, as shares of the width and the height of the page.
    """
    with pypdfium2.PdfDocument(document) as pdf:
        sheet = pdf[page - 1]
        width, height = sheet.get_size()
        text = sheet.get_textpage()
        found = [
            text.get_text_bounded(left * width, height * (1 - bottom), right * width, height * (1 - top))
            for left, top, right, bottom in boxes
        ]
    return one_line(" ".join(found))


@contextmanager
def quickstarted(walk: Walk) -> Iterator[str]:
    """Runs `scripts/quickstart` in a fresh clone; its daemon and the clone are gone after the block.

    Returns:
        The address of the console, from what the script prints.

    Raises:
        WalkFailed: The script failed, or printed no address.
    """
    with tempfile.TemporaryDirectory(prefix="edge-rag-first-walk-") as folder:
        clone = Path(folder, "edge-rag")
        with walk.step("clone"):
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        try:
            with walk.step("quickstart"):
                printed = _quickstart(clone)
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            kept = SCREENSHOTS / f"{NAME}-quickstart.txt"
            kept.write_text(printed)
            walk.seen.append(str(kept))
            address = re.search(r"in a browser:.*?(https?://\S+)", printed)
            if address is None:
                raise WalkFailed("scripts/quickstart prints no address for a browser")
            yield address.group(1)
        finally:
            # In a session of its own, a second Ctrl-C does not reach it.
            subprocess.run([clone / "scripts" / "quickstart", "--stop"], check=False, start_new_session=True)


def _quickstart(clone: Path) -> str:
    """Runs the script to its end and returns what it prints, which is shown meanwhile."""
    # In a session of its own, an interruption ends it with what it has started.
    script = subprocess.Popen(
        [clone / "scripts" / "quickstart"],
        cwd=clone,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert script.stdout is not None
    lines = []
    try:
        for line in script.stdout:
            sys.stderr.write(line)
            lines.append(line)
        status = script.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGTERM)
        script.wait(_STOP_S)
        raise
    if status != 0:
        raise WalkFailed(f"scripts/quickstart ended with status {status}; what it says is above")
    return "".join(lines)


def main() -> int:
    """Walks, and prints what each step took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--question", default=QUESTION, help="one that a PDF of deploy/samples answers")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    walk = Walk(wanted.question)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with quickstarted(walk) as address, sync_playwright() as playwright, chromium(playwright) as browser:
            with browser_page(browser, address.rstrip("/")) as (page, watch):
                ask_and_follow(page, address, walk)
                if watch.problems:
                    raise WalkFailed(f"the page had problems: {'; '.join(watch.problems)}")
    except KeyboardInterrupt:
        return 130
    except (WalkFailed, AssertionError, PlaywrightError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"first_walk: {error}\n")
        return 1
    if wanted.json:
        sys.stdout.write(json.dumps(asdict(walk)) + "\n")
        return 0
    write = sys.stdout.write
    for name, seconds in walk.seconds.items():
        write(f"{name:12} {seconds:7.1f} s\n")
    write(f"{walk.document}, page {walk.page}: {walk.marked}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
