"""What administrators do in the console: tokens, pairing of devices, feedback and models."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.e2e.console.conftest import Pages
from tests.e2e.http.test_http_access import request
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.running_daemon import RunningDaemon
from tests.e2e.support.secured_daemon import Box
from tests.synthetic.tiny_gguf import tiny_model

Screenshot = Callable[..., Path]
Axe = Callable[[Page], None]

HOSTILE = "<script>alert(1)</script>\u202egnp"
SHOWN = "<script>alert(1)</script>⟨U+202E⟩gnp"


def as_client(pages: Pages, box: Box, name: str, path: str) -> Page:
    return pages(path, daemon=box.running, headers={"authorization": f"Bearer {box.tokens[name]}"})


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader").get_by_text(name, exact=True))


def test_a_token_is_made_shown_once_changed_and_revoked(
    box: Box, open_page: Pages, axe: Axe, screenshot: Screenshot
) -> None:
    page = as_client(open_page, box, "admin", "/#/access")
    open_page.watch(page).allow(r"status of 409 \(Conflict\)")
    expect(row(page, "admin")).to_contain_text("yours")
    page.get_by_role("button", name="Make a token").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("reader")
    form.get_by_role("button", name="Make a token").click()
    expect(form.get_by_text("there is a token for reader already")).to_be_visible()
    expect(form.get_by_label("Name")).to_be_focused()
    form.get_by_label("Name").fill("kiosk-7")
    form.get_by_label("All collections").uncheck()
    form.get_by_role("checkbox", name="a", exact=True).check()
    form.get_by_label("Requests a minute").fill("30")
    form.get_by_label("Expires").select_option("in 30 days")
    axe(page)
    screenshot("access-token", page)
    form.get_by_role("button", name="Make a token").click()
    secret = page.locator(".secret").inner_text()
    axe(page)
    page.get_by_role("dialog").get_by_role("button", name="Done").click()
    expect(page.locator(".secret")).to_have_count(0)
    assert secret not in page.content()

    _, identity = request(box, "GET", "/api/v1/whoami", secret)
    assert (identity["name"], identity["collections"], identity["requests_per_minute"]) == ("kiosk-7", ["a"], 30)
    expect(row(page, "kiosk-7")).to_contain_text("Requests a minute: 30")
    page.get_by_role("button", name="Change kiosk-7").click()
    form.get_by_role("checkbox", name="writer").check()
    form.get_by_label("Requests a minute").fill("")
    form.get_by_role("button", name="Save").click()
    expect(row(page, "kiosk-7")).to_contain_text("reader, writer")
    _, identity = request(box, "GET", "/api/v1/whoami", secret)
    assert (identity["roles"], identity["requests_per_minute"]) == (["reader", "writer"], None)
    assert widest_overflow(page) == 0

    page.get_by_role("button", name="Revoke kiosk-7").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    expect(row(page, "kiosk-7")).to_have_count(0)
    assert request(box, "GET", "/api/v1/whoami", secret)[0] == 401


def test_nobody_shuts_itself_out_by_mistake(box: Box, open_page: Pages) -> None:
    page = as_client(open_page, box, "admin", "/#/access")
    open_page.watch(page).allow(r"status of 4\d\d")
    page.get_by_role("button", name="Revoke admin").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    asked = page.get_by_role("dialog", name="This is your own access")
    asked.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("this revokes the token that you use").first).to_be_attached()
    assert request(box, "GET", "/api/v1/whoami", box.tokens["admin"])[0] == 200


def test_a_device_is_paired_by_the_code_that_its_camera_reads(
    box: Box, open_page: Pages, axe: Axe, screenshot: Screenshot
) -> None:
    page = as_client(open_page, box, "admin", "/#/access")
    page.get_by_role("button", name="Pair a device").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("phone-of-ada")
    with page.expect_response("**/api/v1/pairing-codes") as answered:
        form.get_by_role("button", name="Pair a device").click()
    made: dict[str, Any] = answered.value.json()
    expect(page.get_by_role("img", name="QR code of the link that signs in")).to_be_visible()
    axe(page)
    screenshot("access-pairing", page)
    drawn = page.evaluate(
        """size => {
            const path = new Path2D(document.querySelector('.qr path').getAttribute('d'));
            const canvas = document.createElement('canvas').getContext('2d');
            const is = (x, y) => canvas.isPointInPath(path, x + 4.5, y + 4.5) ? '1' : '0';
            return Array.from({length: size}, (_, y) => Array.from({length: size}, (_, x) => is(x, y)).join(''));
        }""",
        len(made["qr"]),
    )
    assert drawn == made["qr"]
    link = page.locator(".secret").nth(1).inner_text()
    assert link == made["url"]
    phone = open_page(None, daemon=box.running, width=360)
    phone.goto(link)
    expect(phone.locator("#menu .who")).to_have_text("phone-of-ada")
    page.get_by_role("dialog").get_by_role("button", name="Done").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_readers_see_nothing_of_access(box: Box, open_page: Pages) -> None:
    page = as_client(open_page, box, "reader", "/#/access")
    expect(page.get_by_text("Only administrators of the box see who may do what.")).to_be_visible()
    assert [url for url in open_page.watch(page).requests if re.search("/api/v1/(tokens|feedback)", url)] == []


def test_a_box_for_itself_says_what_to_do_before_others_can_use_tokens(open_page: Pages) -> None:
    page = open_page("/#/access")
    expect(page.locator(".advice")).to_contain_text("edge-rag tls init")
    expect(page.get_by_text("There are no tokens: nobody else can sign in.")).to_be_visible()


def test_feedback_is_read_with_its_text_and_way_and_deleted(
    box: Box, open_page: Pages, axe: Axe, screenshot: Screenshot
) -> None:
    reader = box.tokens["reader-a"]
    said = {"request_id": "asked-77", "rating": "down", "note": f"{HOSTILE}\nsecond line", "question": "When?"}
    assert request(box, "POST", "/api/v1/feedback", reader, {**said, "answer": "At six.", "collection": "a"})[0] == 200
    assert request(box, "POST", "/api/v1/feedback", reader, {"request_id": "asked-78", "rating": "up"})[0] == 200
    page = as_client(open_page, box, "admin", "/#/access/feedback")
    items = page.locator(".feedback-item")
    expect(items).to_have_count(2)
    expect(items.nth(0)).to_contain_text("Question and answer were not sent along.")
    expect(items.nth(1).locator("blockquote")).to_have_text(f"{SHOWN}\nsecond line")
    expect(items.nth(1)).to_contain_text("At six.")
    axe(page)
    screenshot("access-feedback", page)
    page.get_by_label("Show").select_option("What did not help")
    expect(items).to_have_count(1)
    assert (items.get_by_role("link").get_attribute("href") or "").endswith("#/box/requests/asked-77")
    items.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(items).to_have_count(0)
    expect(page.get_by_text("Helped: 1. Did not help: 0.")).to_be_visible()


def test_a_model_is_sent_added_with_progress_verified_and_removed(
    console_daemon: RunningDaemon, open_page: Pages, axe: Axe, screenshot: Screenshot, tmp_path: Path
) -> None:
    gguf = tiny_model("llama").write(tmp_path / "Pocket.gguf")
    page = open_page("/#/box/models")
    expect(row(page, "minilm-l6").first).to_contain_text("in use")
    page.get_by_label("Or a file of this device").set_input_files(gguf)
    page.get_by_label("Add it even if").check()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", name="Adding pocket")).to_be_visible()
    page.goto("/#/ask")
    page.goto("/#/box/models")  # it went on without the page
    expect(row(page, "pocket")).to_contain_text("verified")
    expect(page.get_by_role("progressbar")).to_have_count(0)
    axe(page)
    screenshot("box-models", page)
    page.get_by_role("button", name="Verify: pocket").click()
    expect(page.get_by_text("Every byte of pocket is as it should be.").first).to_be_attached()
    page.get_by_role("button", name="Remove: pocket").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row(page, "pocket")).to_have_count(0)


def test_what_cannot_be_added_is_told_where_it_was_named(open_page: Pages) -> None:
    page = open_page("/#/box/models")
    open_page.watch(page).allow(r"status of 400")
    page.get_by_label("Model", exact=True).fill("/etc")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("edge-rag models add PATH").first).to_be_attached()
    expect(page.get_by_role("row").filter(has_text="granite-4.0-350m")).to_contain_text("Apache-2.0")
