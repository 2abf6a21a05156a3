"""The tests of the console see what a page does wrong: each fault is put into a page, and is reported."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.e2e.support.browser import Watch, browser_page, violations, widest_overflow

ORIGIN = "http://127.0.0.1:9"
POLICY = "default-src 'none'; script-src 'self'; img-src *; require-trusted-types-for 'script'; trusted-types 'none'"
GOOD = (
    '<!doctype html><html lang="en"><title>t</title><meta name="viewport" content="width=device-width"><main><h1>t</h1>'
)


def load(page: Page, body: str, script: str = "") -> None:
    """Shows a page of the origin without a daemon."""

    def answer(route: Route) -> None:
        if route.request.url == f"{ORIGIN}/":
            headers = {"content-security-policy": POLICY}
            text = f'{GOOD}{body}<script src="/script.js"></script>'
            route.fulfill(content_type="text/html; charset=utf-8", headers=headers, body=text)
        elif route.request.url == f"{ORIGIN}/script.js":
            route.fulfill(content_type="text/javascript", body=script)
        else:
            route.fulfill(status=204)

    page.route("**/*", answer)
    page.goto("/")


@pytest.mark.parametrize(
    ("body", "script", "reported"),
    [
        ("", "", None),
        ("", "console.warn('fine')", None),
        ("", "console.error('wrong')", "console: wrong"),
        ("", "missing()", "uncaught missing is not defined"),
        ("<p style='color: red'>", "", "violates the following Content Security Policy"),
        ("<p onclick='run()'>", "", "violates the following Content Security Policy"),
        ("", "document.body.innerHTML = '<p>'", "TrustedHTML"),
        ("<img alt='' src='http://192.0.2.1/pixel'>", "", "a request to http://192.0.2.1/pixel"),
        ("<img alt='' src='http://127.0.0.1:10/pixel'>", "", "a request to http://127.0.0.1:10/pixel"),
    ],
)
def test_what_a_page_must_not_do_is_reported(browser: Browser, body: str, script: str, reported: str | None) -> None:
    with browser_page(browser, ORIGIN) as (page, watch):
        load(page, body, script)
        if reported is None:
            assert watch.problems == []
        else:
            assert any(reported in problem for problem in watch.problems), watch.problems


def test_faults_of_access_are_found_in_both_themes(browser: Browser) -> None:
    with browser_page(browser, ORIGIN) as (page, _):
        load(page, "<button></button>")
        assert [text.split(": ")[:2] for text in violations(page)] == [
            ["light", "button-name"],
            ["dark", "button-name"],
        ]


def test_a_document_wider_than_the_window_is_measured(browser: Browser) -> None:
    with browser_page(browser, ORIGIN, width=360) as (page, _):
        load(page, "<img alt='' src='/wide' width='400' height='1'>")
        assert widest_overflow(page) > 0
        page.set_viewport_size({"width": 500, "height": 500})
        assert widest_overflow(page) == 0


def test_what_is_allowed_is_no_problem_before_or_after() -> None:
    watch = Watch(ORIGIN)
    watch.report("console: status of 401")
    watch.allow("status of 401")
    watch.report("console: status of 401")
    watch.report("console: status of 500")
    assert watch.problems == ["console: status of 500"]
