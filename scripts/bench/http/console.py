"""The console in Chromium: its first view over a slow connection, and its memory over many answers.

    python -m scripts.bench.http.console [--views 5] [--documents 10000] [--answers 1000] [--json]

First view: a browser that has nothing of the console yet, over what Chromium's developer tools call "fast 3G" (180
kB/s, 562.5 ms more for every request): when the first text is painted, when a question can be asked, and bytes
received, headers included; medians. List: the same without delay for the view of a collection of very many documents,
until its first rows are there. Memory: JavaScript heap after a garbage collection, nodes and event listeners of a
page in which one question after another is asked, at ten points. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from scripts.bench.harness.crowd import EMBEDDER, crowd
from scripts.bench.harness.daemon import daemon_with_samples, running

HTTP: Final = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
QUESTIONS: Final = (
    "How often must the pump bearings be greased?",
    "When must a hydrogen sulphide value be reported to the shift leader?",
    "Which wires stay live when the main breaker is off?",
    "How many litres of oil does the engine of the generator take?",
    "What is the delivery time of an impeller?",
)
FAST_3G: Final = {"latency": 562.5, "downloadThroughput": 180_000, "uploadThroughput": 84_375}
"""Chromium's preset: milliseconds more for every request, bytes a second."""

MOST_WAIT_MS: Final = 120_000
POINTS: Final = 10


@dataclass(frozen=True, slots=True)
class FirstView:
    """What a first view took.

    Attributes:
        first_paint_ms: Until the first text was painted.
        ready_ms: Until a question could be typed.
        received_bytes: Bytes of all responses until then, as they were sent, with headers.
        requests: Requests until then.
    """

    first_paint_ms: float
    ready_ms: float
    received_bytes: int
    requests: int


@dataclass(frozen=True, slots=True)
class PageMemory:
    """What a page holds after a garbage collection.

    Attributes:
        answers: Answers before.
        heap_bytes: JavaScript heap in use.
        nodes: DOM nodes.
        listeners: Event listeners.
    """

    answers: int
    heap_bytes: int
    nodes: int
    listeners: int


def slow_down(page: Page) -> None:
    """Has a page load everything anew over "fast 3G"."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    session.send("Network.emulateNetworkConditions", {"offline": False, **FAST_3G})


def first_view(page: Page, path: str = "/", ready: Callable[[Page], Locator] | None = None) -> FirstView:
    """Loads the console in an empty page and returns what that took.

    Args:
        page: The page.
        path: Which view.
        ready: Returns what is there when the view is; the field for questions if None.
    """
    page.goto(path, wait_until="commit")
    expect((ready or question_field)(page)).to_be_visible(timeout=MOST_WAIT_MS)
    script = """() => {
        const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
        return {
            painted: performance.getEntriesByName('first-contentful-paint')[0].startTime,
            ready: performance.now(),
            bytes: all.reduce((sum, each) => sum + each.transferSize, 0),
            requests: all.length,
        };
    }"""
    page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
    found = page.evaluate(script)
    return FirstView(found["painted"], found["ready"], found["bytes"], found["requests"])


def first_row(page: Page) -> Locator:
    """Returns the first document of a list."""
    return page.locator('li[aria-posinset="1"] a')


def question_field(page: Page) -> Locator:
    """Returns the field that questions are typed into."""
    return page.get_by_role("main").get_by_role("textbox", name="Question")


def ask(page: Page, question: str) -> Locator:
    """Asks a question and returns its answer's element once the answer is complete."""
    field = question_field(page)
    field.fill(question)
    field.press("Enter")
    answer = page.get_by_role("article", name=question).last
    expect(answer.get_by_role("button", name="Ask again")).to_be_visible(timeout=MOST_WAIT_MS)
    return answer


def memory(page: Page, answers: int) -> PageMemory:
    """Returns what a page holds now."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found = {each["name"]: int(each["value"]) for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return PageMemory(answers, found["JSHeapUsedSize"], found["Nodes"], found["JSEventListeners"])


def _rows(found: Sequence[FirstView | PageMemory]) -> list[dict[str, float]]:
    return [asdict(each) for each in found]


def _pages(browser: Browser, origin: str) -> Page:
    page = browser.new_context(base_url=origin, locale="en-US", viewport={"width": 1280, "height": 800}).new_page()
    page.set_default_timeout(MOST_WAIT_MS)
    return page


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=5, help="first views")
    parser.add_argument("--documents", type=int, default=10_000, help="documents of the list")
    parser.add_argument("--answers", type=int, default=1000, help="questions asked in one page; 0 leaves this out")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("Chromium is missing: apt-get install chromium")
    views: list[FirstView] = []
    lists: list[FirstView] = []
    held: list[PageMemory] = []
    with daemon_with_samples(HTTP) as daemon, sync_playwright() as playwright:
        # Chromium's sandbox does not run as root.
        browser = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=os.geteuid() != 0)
        for _ in range(wanted.views):
            page = _pages(browser, daemon.http)
            slow_down(page)
            views.append(first_view(page))
            page.context.close()
        page = _pages(browser, daemon.http)
        page.goto("/")
        every = max(1, wanted.answers // POINTS)
        for number, question in zip(range(1, wanted.answers + 1), cycle(QUESTIONS), strict=False):
            ask(page, question)
            if number % every == 0:
                held.append(memory(page, number))
        browser.close()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        data = Path(folder, "data")
        crowd(data, wanted.documents)
        with running(data, f'{HTTP}[models]\nembedder = "{EMBEDDER.name}"\n') as daemon:
            browser = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=os.geteuid() != 0)
            for _ in range(wanted.views):
                page = _pages(browser, daemon.http)
                lists.append(first_view(page, "/#/documents/records", first_row))
                page.context.close()
            browser.close()
    if wanted.json:
        figures = {"views": _rows(views), "lists": _rows(lists), "memory": _rows(held)}
        sys.stdout.write(json.dumps(figures) + "\n")
        return 0
    write = sys.stdout.write
    for name, found in (("first view", views), (f"{wanted.documents} documents", lists)):
        painted, ready = (median(getattr(view, f"{each}_ms") for view in found) for each in ("first_paint", "ready"))
        received = max(view.received_bytes for view in found) / 1000
        write(f"{name}: first paint {painted:.0f} ms, ready {ready:.0f} ms, ")
        write(f"{received:.1f} kB in {found[0].requests} requests\n")
    for each in held:
        sizes = f"{each.heap_bytes / 2**20:8.1f} MiB {each.nodes:8} nodes {each.listeners:6} listeners"
        write(f"{each.answers:5} answers {sizes}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
