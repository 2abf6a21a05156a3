"""The console in a real browser, against a daemon that holds the sample documents in collection ``default``.

Playwright's blocking API keeps an event loop of its own running in this thread until the browser is closed, so that no
asynchronous test can run meanwhile: the browser lives for one file, and the tests here are not asynchronous.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.support.browser import Watch, browser_page, chromium, keep_screenshot, violations
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents, start_daemon

_HERE = Path(__file__).parent

CONSOLE = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
"""Settings of a daemon that serves the console on a free port."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def console_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """Shared by all files here: what a test adds to it goes into a collection of its own."""
    folder = tmp_path_factory.mktemp("console-daemon")
    with start_daemon(folder / "data", folder / "log", CONSOLE) as running:
        ingest(running.address, sample_documents())
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as running:
        yield running


@dataclass
class Pages:
    """Opens pages, and tells in the end what they did that they must not do."""

    browser: Browser
    daemon: RunningDaemon
    stack: ExitStack
    watches: dict[Page, Watch] = field(default_factory=dict)

    def __call__(self, path: str | None = "/", *, daemon: RunningDaemon | None = None, **settings: Any) -> Page:
        """Opens a page of the console."""
        origin = (daemon or self.daemon).http
        page, watch = self.stack.enter_context(browser_page(self.browser, origin, **settings))
        self.watches[page] = watch
        if path is not None:
            page.goto(path)
        return page

    def watch(self, page: Page) -> Watch:
        return self.watches[page]


@pytest.fixture
def open_page(browser: Browser, console_daemon: RunningDaemon) -> Iterator[Pages]:
    """Opens pages with other settings than ``page`` has; a test fails if one has a problem (see ``Watch``)."""
    with ExitStack() as stack:
        pages = Pages(browser, console_daemon, stack)
        yield pages
        problems = [problem for watch in pages.watches.values() for problem in watch.problems]
    assert problems == []


@pytest.fixture
def page(open_page: Pages) -> Page:
    """The console at ``/``: English, 1280 by 800, light."""
    return open_page()


@pytest.fixture
def watch(page: Page, open_page: Pages) -> Watch:
    """What the page of the fixture ``page`` did."""
    return open_page.watch(page)


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Returns a function of a name and a page (by default the one of the fixture ``page``), which writes
    ``build/console/NAME.png``."""

    def take(name: str, page: Page | None = None) -> Path:
        return keep_screenshot(page or request.getfixturevalue("page"), name)

    return take


@pytest.fixture
def axe() -> Callable[[Page], None]:
    """Returns a function that fails where axe-core finds something against WCAG 2.2 AA in either theme."""

    def check(page: Page) -> None:
        assert violations(page) == []

    return check
