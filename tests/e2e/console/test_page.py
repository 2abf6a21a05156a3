"""The page that every view is in: its policy, its languages, its widths, and how little of it is sent."""

from __future__ import annotations

import http.client
import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.e2e.console.conftest import Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.running_daemon import RunningDaemon

MOST_BYTES_OF_A_FIRST_VIEW = 300_000


def get(daemon: RunningDaemon, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(urlsplit(daemon.http).netloc, timeout=60)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers=names)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_the_policy_lets_nothing_in_but_the_console_itself(console_daemon: RunningDaemon) -> None:
    response, page = get(console_daemon, "/")
    policy = dict(part.strip().partition(" ")[::2] for part in response.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"
    sources = {source for name, allowed in policy.items() if name.endswith("-src") for source in allowed.split()}
    assert {re.sub(r"'sha256-[\w+/=]+'", "'sha256'", source) for source in sources} <= {
        "'none'",
        "'self'",
        "'sha256'",
        "blob:",
    }
    assert "unsafe" not in response.headers["content-security-policy"]
    assert all(policy[name] == "'none'" for name in ("base-uri", "form-action", "frame-ancestors"))
    assert b"<script>" not in page


@pytest.mark.parametrize(
    ("language", "shown", "name"),
    [
        ("en-GB", "en", "Documents"),
        ("de-AT", "de", "Dokumente"),
        ("es-MX", "es", "Documentos"),
        ("fr", "fr", "Documents"),
        ("ja", "en", "Documents"),
    ],
)
def test_texts_are_in_the_language_of_the_browser(open_page: Pages, language: str, shown: str, name: str) -> None:
    page = open_page(language=language)
    expect(page.locator("html")).to_have_attribute("lang", shown)
    expect(page.get_by_role("navigation").get_by_role("link", name=name, exact=True)).to_be_visible()
    expect(page.get_by_role("main").get_by_role("textbox").first).to_be_visible()
    assert "undefined" not in page.inner_text("body")


def test_a_first_view_needs_few_bytes_and_one_request_to_show_something(open_page: Pages) -> None:
    page = open_page(None)
    page.goto("/")
    expect(page.get_by_role("main").get_by_role("textbox").first).to_be_visible()
    received = page.evaluate(
        """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
            .map(each => each.transferSize)"""
    )
    assert 0 < sum(received) < MOST_BYTES_OF_A_FIRST_VIEW
    # Without scripts, the page already says where one is: nothing else has to come for the first paint.
    shell = page.evaluate("async () => (await fetch('/')).text()")
    assert re.search(r"<nav[^>]*>.*Documents.*</nav>", shell, re.DOTALL)
    assert 'rel="stylesheet"' not in shell


def test_a_second_visit_loads_nothing_again(open_page: Pages) -> None:
    page = open_page()
    expect(page.get_by_role("main").get_by_role("textbox").first).to_be_visible()
    page.goto("about:blank")
    page.goto("/")
    expect(page.get_by_role("main").get_by_role("textbox").first).to_be_visible()
    received = page.evaluate(
        """() => performance.getEntriesByType('resource')
            .filter(each => each.name.includes('/console/')).map(each => [each.name, each.transferSize])"""
    )
    assert received
    assert [name for name, size in received if size] == []


@pytest.mark.parametrize("width", [360, 1024, 2560])
def test_nothing_scrolls_sideways(open_page: Pages, width: int) -> None:
    page = open_page(width=width)
    expect(page.get_by_role("main").get_by_role("textbox").first).to_be_visible()
    assert widest_overflow(page) == 0
