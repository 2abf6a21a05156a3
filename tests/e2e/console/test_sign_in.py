"""Signing in and out in a browser: by a link with a code, by typing, and after a token was revoked."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from edge_rag.server.http.credentials import COOKIE
from tests.e2e.console.conftest import Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.secured_daemon import Box, edge_rag, token


def refusals_are_expected(pages: Pages, page: Page) -> None:
    """Chromium writes a line to its console for each 401 that the box answers a request of the page with."""
    pages.watch(page).allow(r"status of 401 \(Unauthorized\)")


def code_for(box: Box, name: str) -> str:
    return edge_rag("pair", "--name", name, data=box.data).strip()


def test_a_link_signs_in_and_leaves_no_code_behind(box: Box, open_page: Pages) -> None:
    page = open_page(f"/#/sign-in/{code_for(box, 'phone-1')}", daemon=box.running)
    expect(page.locator("#menu .who")).to_have_text("phone-1")
    assert page.url == f"{box.running.http}/#/ask"
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["secure"]) == (COOKIE, True, True)
    assert (cookie["sameSite"], cookie["path"]) == ("Strict", "/")
    assert page.evaluate("document.cookie") == ""
    assert not re.search(r"sign-in/\w", " ".join(open_page.watch(page).requests))
    assert page.evaluate("history.length") <= 2


def test_a_code_that_was_not_looked_at_can_be_tried_again(box: Box, open_page: Pages) -> None:
    page = open_page(None, daemon=box.running)
    open_page.watch(page).allow(r"status of 429 \(Too Many Requests\)")
    busy = {"error": {"message": "quota", "type": "rate_limit_error", "param": None, "code": "quota_exceeded"}}
    page.route(
        "**/api/v1/session",
        lambda route: route.fulfill(status=429, json=busy, headers={"retry-after-ms": "41000"}),
        times=1,
    )
    code = code_for(box, "phone-3")
    page.goto(f"/#/sign-in/{code}")
    expect(page.get_by_text("Too many attempts from your network. Try again in 41 sec.")).to_be_visible()
    expect(page.get_by_label("Code")).to_have_value(code)
    page.keyboard.press("Enter")
    expect(page.locator("#menu .who")).to_have_text("phone-3")


def test_who_is_unknown_is_asked_and_then_sees_what_was_wanted(
    box: Box, open_page: Pages, screenshot: Callable[..., object]
) -> None:
    page = open_page(None, daemon=box.running)
    refusals_are_expected(open_page, page)
    page.goto("/#/documents")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    screenshot("sign-in", page)
    page.get_by_label("Code").fill("AAAAAA-BBBBBB")
    open_page.watch(page).allow(r"status of 400 \(Bad Request\)")
    page.get_by_role("button", name="Sign in").first.click()
    expect(page.get_by_text("This is not a code: check for typing errors.").first).to_be_visible()
    used = code_for(box, "phone-2")
    edge_rag("pair", "--name", "phone-2", data=box.data)  # the later one voids it
    page.get_by_label("Code").fill(used)
    page.keyboard.press("Enter")
    expect(page.get_by_text("This code is wrong, used or expired. Ask for another one.").first).to_be_visible()
    page.get_by_label("Token").fill(box.tokens["reader"])
    page.keyboard.press("Enter")
    expect(page.locator("#menu .who")).to_have_text("reader")
    assert page.url == f"{box.running.http}/#/documents"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert page.context.cookies() == []


def test_a_revoked_token_leads_to_the_sign_in(box: Box, open_page: Pages) -> None:
    text = token("visitor", box.data)
    page = open_page(None, daemon=box.running)
    refusals_are_expected(open_page, page)
    page.goto("/#/sign-in")
    page.get_by_label("Token").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator("#menu .who")).to_have_text("visitor")
    edge_rag("token", "revoke", "visitor", data=box.data)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert page.context.cookies() == []


@pytest.mark.parametrize(
    ("language", "title"),
    [("en-GB", "Sign in"), ("de-CH", "Anmelden"), ("es-MX", "Iniciar sesión"), ("fr", "Se connecter")],
)
def test_it_is_for_everybody(
    box: Box, open_page: Pages, axe: Callable[[Page], None], language: str, title: str
) -> None:
    page = open_page("/#/sign-in", daemon=box.running, language=language, width=360, height=640)
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    assert page.locator("html").get_attribute("lang") == language[:2]
    assert widest_overflow(page) == 0
    axe(page)
