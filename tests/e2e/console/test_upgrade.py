"""A page that is open while the box gets another version of the console."""

import re

from playwright.sync_api import Route, expect

from tests.e2e.console.conftest import Pages


def test_a_page_whose_files_are_gone_loads_itself_again(open_page: Pages) -> None:
    page = open_page("/#/ask")
    open_page.watch(page).allow(r"status of 404 \(Not Found\)")
    expect(page.get_by_role("link", name="The box")).to_be_visible()
    loaded = []
    page.on("load", lambda _: loaded.append(page.url))

    def gone(route: Route) -> None:
        route.fulfill(status=404, body="")

    def upgraded(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=re.sub(r"/console/[0-9a-f]{16}", "/console/0", response.text()))

    page.route("**/box/view.js", gone, times=1)
    page.route(re.compile(r"/$"), upgraded, times=1)
    page.get_by_role("link", name="The box").click()
    expect(page.locator(".view-box h1, .view-box h2").first).to_be_visible()
    assert loaded == [page.url]


def test_a_view_that_cannot_be_loaded_now_can_be_tried_again(open_page: Pages) -> None:
    page = open_page("/#/ask")
    open_page.watch(page).allow("net::ERR_FAILED")
    expect(page.get_by_role("link", name="The box")).to_be_visible()
    page.route("**/*", lambda route: route.abort())
    page.get_by_role("link", name="The box").click()
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    assert page.url.endswith("/#/box")
