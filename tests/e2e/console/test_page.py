"""The page that every view is in: how little of it is sent."""

import re

from playwright.sync_api import expect

from tests.e2e.console.conftest import Pages

MOST_BYTES_OF_A_FIRST_VIEW = 300_000


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
