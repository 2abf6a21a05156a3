"""Chromium as the users' browser, which reports whatever a page does that it must not do."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, expect

from tests.e2e.support.running_daemon import ROOT

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""None where there is none; ``scripts/test --all`` installs it, or leaves out what needs it and says so."""

MOST_WAIT_MS: Final = 60_000
"""For anything the page is to show: two cores may run the tests of two daemons."""

SCREENSHOTS: Final = ROOT / "build" / "console"

WCAG_AA: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
"""axe-core's tags of WCAG 2.2, level AA."""

Theme = Literal["light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Starts Chromium without a window, cut off from every host but this machine."""
    assert CHROMIUM is not None, "Chromium is missing: apt-get install chromium"
    this_machine = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
    expect.set_options(timeout=MOST_WAIT_MS)
    browser = playwright.chromium.launch(
        executable_path=CHROMIUM,
        args=[this_machine, "--disable-dev-shm-usage"],
        # Chromium's sandbox does not run as root.
        chromium_sandbox=os.geteuid() != 0,
        timeout=2 * MOST_WAIT_MS,
    )
    try:
        yield browser
    finally:
        browser.close()


@dataclass
class Watch:
    """What a page must not do: errors on its console, uncaught exceptions, violations of its security policy, and
    requests that leave its origin.
    """

    origin: str
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _allowed: list[re.Pattern[str]] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        # Chromium reports violations of a policy and failed requests as errors on the console.
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.report(f"uncaught {error}"))
        page.on("crash", lambda _: self.report("the page crashed"))
        page.on("request", self._on_request)
        page.on("websocket", lambda socket: self.report(f"a web socket to {socket.url}"))

    def allow(self, pattern: str) -> None:
        """Takes problems that contain the regular expression as expected, those before as well as those to come."""
        self._allowed.append(re.compile(pattern))
        self.problems[:] = [problem for problem in self.problems if not self._allowed[-1].search(problem)]

    def report(self, problem: str) -> None:
        if not any(pattern.search(problem) for pattern in self._allowed):
            self.problems.append(problem)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "assert"}:
            place = message.location
            self.report(f"console: {message.text} ({place.get('url')}:{place.get('lineNumber')})")

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
        url = urlsplit(request.url)
        if url.scheme == "blob":
            url = urlsplit(url.path)
        if f"{url.scheme}://{url.netloc}" != self.origin:
            self.report(f"a request to {request.url}")


@contextmanager
def browser_page(
    browser: Browser,
    origin: str,
    *,
    language: str = "en-US",
    width: int = 1280,
    height: int = 800,
    theme: Theme = "light",
    reduced_motion: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Iterator[tuple[Page, Watch]]:
    """Opens an empty page with storage of its own; paths for ``page.goto`` are relative to the origin.

    Without ``reduced_motion``, colours may be measured amid a transition.
    """
    context = browser.new_context(
        base_url=origin,
        locale=language,
        viewport={"width": width, "height": height},
        color_scheme=theme,
        reduced_motion="reduce" if reduced_motion else "no-preference",
        ignore_https_errors=True,
        extra_http_headers=dict(headers or {}),
    )
    try:
        context.set_default_timeout(MOST_WAIT_MS)
        page = context.new_page()
        watch = Watch(origin)
        watch.follow(page)
        yield page, watch
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """Returns what axe-core finds against WCAG 2.2 AA in the page as it is now, in the light and in the dark theme."""
    page.evaluate(AXE_SCRIPT)
    found = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        options: dict[str, Any] = {"runOnly": list(WCAG_AA), "resultTypes": ["violations"]}
        for violation in page.evaluate("options => axe.run(document, options)", options)["violations"]:
            for node in violation["nodes"]:
                found.append(f"{theme}: {violation['id']}: {node['html'][:300]}: {node['failureSummary']}")
    page.emulate_media(color_scheme="light")
    return found


def keep_screenshot(page: Page, name: str) -> Path:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path)
    return path


def widest_overflow(page: Page) -> int:
    """Returns by how many CSS pixels the document is wider than the view port; 0 where nothing scrolls sideways."""
    script = "() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
    overflow: int = page.evaluate(script)
    return overflow
