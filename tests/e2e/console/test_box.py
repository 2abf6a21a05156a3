"""How the box is: live numbers, requests and the trail of one, usage, backups, certificates, and what readers see."""

import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from edge_rag.storage.backup import unpack
from tests.e2e.console.conftest import CONSOLE, Pages
from tests.e2e.support.browser import widest_overflow
from tests.e2e.support.running_daemon import RunningDaemon, start_daemon
from tests.e2e.support.secured_daemon import Box

QUESTION = "How often must the pump bearings be greased?"

Screenshot = Callable[..., Path]
Axe = Callable[[Page], None]


def ask(daemon: RunningDaemon, mode: str, request_id: str = "") -> dict[str, Any]:
    headers = {"content-type": "application/json"} | ({"x-request-id": request_id} if request_id else {})
    body = json.dumps({"question": QUESTION, "mode": mode}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{daemon.http}/api/v1/ask", body, headers)) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


@contextmanager
def asking(daemon: RunningDaemon) -> Iterator[None]:
    """Asks one question after the other during the block."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            ask(daemon, "free")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def card(page: Page, title: str) -> Locator:
    return page.locator(".live > section").filter(has=page.get_by_role("heading", name=title, exact=True))


def test_live_values_change_while_questions_are_answered(
    open_page: Pages, console_daemon: RunningDaemon, screenshot: Screenshot
) -> None:
    page = open_page("/#/box")
    expect(card(page, "State")).to_contain_text("in service")
    generator = card(page, "Stages").get_by_role("row").filter(has_text="Generator")
    before = int(generator.get_by_role("cell").nth(6).inner_text().replace(",", ""))
    with asking(console_daemon):
        expect(card(page, "Speed").locator(".figure").first).not_to_have_text(re.compile(r"^0$"))
        expect(card(page, "Page map").get_by_role("img")).not_to_have_accessible_name(re.compile(" 0 kept"))
        expect(card(page, "Latency").get_by_role("row").filter(has_text="First text")).to_be_visible()
        expect(generator.get_by_role("cell").nth(6)).not_to_have_text(f"{before:,}")
        screenshot("box-live", page)
    assert len((card(page, "Speed").locator("polyline").first.get_attribute("points") or "").split()) <= 120
    expect(card(page, "Memory plan").get_by_role("listitem").first).to_contain_text("process")
    expect(card(page, "Other machines")).to_contain_text("Offload is off")
    # Numbers are no news: nothing of them was said.
    assert page.locator("#live").inner_text() == ""


def test_heat_short_memory_slots_and_other_machines_are_told(
    open_page: Pages, console_daemon: RunningDaemon, screenshot: Screenshot, axe: Axe
) -> None:
    with urllib.request.urlopen(f"{console_daemon.http}/api/v1/status") as response:
        status = json.load(response)
    slot = {"request_id": "r1", "client": "<b>ward</b>\u202e", "priority": "batch", "age_s": 1.5, "prompt_tokens": 500}
    slot |= {"cached_tokens": 0, "computed_tokens": 200, "generated_tokens": 0, "max_tokens": 64, "pages": 7}
    writing = slot | {"request_id": "r2", "computed_tokens": 516, "generated_tokens": 16, "preemptions": 1}
    remote = {"name": "office", "kind": "edge-rag", "address": "10.0.0.9:7421", "breaker": "open", "in_flight": 1}
    remote |= {"answers": 20, "failures": 3, "sent_bytes": 4096, "last_problem": "it said nothing", "answer_s": 1.5}
    status["engine"] |= {"slots_busy": 2, "sequences": [slot, writing]}
    status["engine"]["page_map"] |= {"held": [2, 0, 0, 0], "shared": [0, 2, 0, 0], "cached": [0, 0, 2, 0]}
    status |= {
        "temperatures": {"cpu-thermal": 61.25},
        "throttling": {"share": 0.5625, "causes": ["heat"], "slowdowns": [], "watts": 12.25},
        "pressure": {"headroom_bytes": 5 << 30, "waiting": 0.125, "shed": ["prefix cache"]},
        "remotes": [remote],
        "state": "recovery",
        "damage": {"problem": "a page cannot be read", "kept": 1, "rebuilt": 0, "lost": 1, "lost_documents": []},
    }
    page = open_page("/#/box/requests")
    body = f"event: status\ndata: {json.dumps(status)}\n\n"
    events = {"content-type": "text/event-stream"}
    open_page.watch(page).allow("ERR_FAILED")
    page.route("**/api/v1/status/events", lambda route: route.abort())
    page.get_by_role("tab", name="Live").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("connection lost")
    page.route("**/api/v1/status/events", lambda route: route.fulfill(body=body, headers=events))
    expect(card(page, "State")).to_contain_text("a page cannot be read")
    heat = card(page, "Load and heat")
    expect(heat.get_by_role("row").filter(has_text="cpu-thermal")).to_contain_text("61 °C")
    expect(heat).to_contain_text("Throttled to 56% because of: heat. Memory is short.")
    expect(heat).to_contain_text("12.3 W")
    slots = card(page, "Slots")
    expect(slots.get_by_role("row").filter(has_text="r1")).to_contain_text("<b>ward</b>⟨U+202E⟩200 of 500 tokens read")
    expect(slots.get_by_role("row").filter(has_text="r2")).to_contain_text("16 of 64 tokens written")
    expect(slots.get_by_role("link", name="r2")).to_have_attribute("href", "#/box/requests/r2")
    pages = card(page, "Page map").get_by_role("img")
    expect(pages).to_have_accessible_name("Pages of the cache: 2 held, 2 shared, 2 kept, 1,018 free")
    expect(card(page, "Other machines")).to_contain_text("paused after failures it said nothing")
    axe(page)
    screenshot("box-throttled", page)


def test_nothing_is_asked_of_the_box_while_the_page_is_hidden(open_page: Pages) -> None:
    page = open_page("/#/box")
    expect(card(page, "State")).to_contain_text("in service")
    show = "hidden => { Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    show += " document.dispatchEvent(new Event('visibilitychange')); }"
    streams = "status/events"
    with page.expect_event("requestfailed", lambda request: streams in request.url):
        page.evaluate(show, True)
    with page.expect_request(lambda request: streams in request.url):
        page.evaluate(show, False)
    expect(card(page, "State")).to_contain_text("live")


def test_a_request_is_found_and_its_trail_told(
    open_page: Pages, console_daemon: RunningDaemon, screenshot: Screenshot, axe: Axe
) -> None:
    ask(console_daemon, "free", "why-so-slow-1")
    ask(console_daemon, "quote", "why-so-slow-2")
    page = open_page("/#/box/requests")
    expect(page.get_by_role("row").filter(has_text="why-so-slow-2")).to_contain_text("quoted")
    page.get_by_label("Id", exact=True).fill("SLOW-1")
    expect(page.get_by_role("row")).to_have_count(2)  # with the heading
    row = page.get_by_role("row").filter(has_text="why-so-slow-1")
    expect(row).to_contain_text("finished")
    page.get_by_label("Outcome").select_option("refused")
    expect(page.get_by_text("There is no such request.")).to_be_visible()
    page.get_by_label("Outcome").select_option("finished")
    row.get_by_role("link").click()

    expect(page.get_by_role("heading", name="Request why-so-slow-1")).to_be_focused()
    bars = page.locator(".timeline > li")
    expect(bars).to_have_count(3)
    expect(bars.nth(0)).to_contain_text(re.compile(r"Retriever.*computed \d"))
    shares = page.locator(".timeline .part.work").evaluate_all("parts => parts.map(each => each.offsetLeft)")
    assert shares == sorted(shares)
    told = page.locator(".timeline-events > li")
    expect(told.nth(0)).to_contain_text("Retriever: done")
    expect(told.last).to_contain_text(re.compile("^.*Finished: .* tokens in .* steps"))
    assert widest_overflow(page) == 0
    axe(page)
    screenshot("box-request", page)
    page.get_by_role("link", name="All requests").click()
    expect(page.get_by_role("heading", name="Latest requests")).to_be_visible()


def event(number: int, at_s: float, kind: str, reason: str = "", **numbers: float) -> dict[str, Any]:
    """Returns an event of the audit log as the API tells it, ``at_s`` seconds after the first."""
    return {
        "number": number,
        "at": "2026-11-23T09:00:00+00:00",
        "monotonic_s": 1000 + at_s,
        "kind": kind,
        "request_id": "r1",
        "client": "<b>ward</b>\u202e",
        "priority": "batch",
        "reason": reason,
        "preempted_for": "<i>r2</i>" if kind == "preempted" else None,
        "numbers": numbers,
    }


TRAILS = {
    "preempted": (
        [
            event(1, 0, "stage_done", "the retriever is done", queue_s=1, compute_s=1),
            event(2, 1, "queued", "waits for a slot", waiting_requests=3),
            event(3, 2, "deferred", "all slots are busy", slots=8),
            event(4, 3, "admitted", prompt_tokens=500, cached_tokens=100, waited_s=2),
            event(5, 5, "preempted", "its slot was needed by a higher class", generated_tokens=7),
            event(6, 9, "resumed", prompt_tokens=507, cached_tokens=500, waited_s=4),
            event(7, 10, "finished", model_steps=12, generated_tokens=40),
        ],
        "finished 12 sec",
        [
            ("Retriever", "waited 1 sec, computed 1 sec"),
            ("Generator", "waited 2 sec, computed 3 sec, interrupted 4 sec"),
        ],
        [
            "behind 3 others",
            "Keeps waiting: all slots are busyslots 8",
            "(for request <i>r2</i>)",
            "40 tokens in 12 steps",
        ],
    ),
    "refused": (
        [event(1, 0, "refused", "the queue is full", retry_after_s=2.5)],
        "refused 0 ms",
        [],
        ["refused: the queue is fullretry_after 2.5 sec"],
    ),
    "running": (
        [
            event(1, 0, "queued"),
            event(2, 4, "admitted", prompt_tokens=5, cached_tokens=0, waited_s=4),
            event(3, 6, "novel", "it is unheard of"),
        ],
        "running 6 sec",
        [("Generator", "waited 4 sec, computed 2 sec")],
        ["novel: it is unheard of"],
    ),
}


@pytest.mark.parametrize("name", TRAILS)
def test_a_trail_is_drawn_and_told_whatever_happened(open_page: Pages, name: str) -> None:
    events, total, bars, words = TRAILS[name]
    page = open_page("/#/box/requests")
    page.route("**/api/v1/audit?request_id=r1*", lambda route: route.fulfill(json={"events": events, "next": None}))
    page.goto("/#/box/requests/r1")
    expect(page.locator(".timeline-total")).to_have_text(total)
    shown = page.locator(".timeline > li")
    told = [tuple(row.locator(":scope > span").all_inner_texts()[::2]) for row in shown.all()]
    assert told == bars
    trail = page.locator(".timeline-events").inner_text()
    assert [each for each in words if each not in trail.replace("\n", "")] == [], trail
    expect(page.get_by_text("<b>ward</b>⟨U+202E⟩")).to_be_visible()
    interrupted = page.locator(".timeline .part.pause").evaluate_all(
        "parts => parts.map(each => each.offsetLeft / each.parentElement.clientWidth)"
    )
    assert interrupted == ([pytest.approx(7 / 12, abs=0.02)] if name == "preempted" else [])


def test_new_requests_are_offered_and_do_not_move_the_list(open_page: Pages, console_daemon: RunningDaemon) -> None:
    ask(console_daemon, "quote", "the-first")
    page = open_page("/#/box/requests")
    expect(page.get_by_role("row").filter(has_text="the-first")).to_be_visible()
    with page.expect_request(lambda request: "audit/events" in request.url):
        page.get_by_role("button", name="Refresh").click()
    ask(console_daemon, "quote", "the-next")
    offered = page.get_by_role("button", name="Show 1 new request")
    expect(offered).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="the-next")).to_have_count(0)
    offered.click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("the-next")


def test_a_backup_is_made_downloaded_and_deleted_and_a_restart_told(
    open_page: Pages, tmp_path: Path, screenshot: Screenshot
) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    own = start_daemon(data, log, CONSOLE)
    try:
        page = open_page("/#/box/backups", daemon=own)
        open_page.watch(page).allow("ERR_|status of 503")
        expect(page.get_by_text("No backup was made yet")).to_be_visible()
        page.get_by_role("button", name="Make a backup").click()
        made = page.get_by_text("The last backup was made on the box")
        expect(made).to_be_visible()
        row = page.get_by_role("row").nth(1)
        with page.expect_download() as started:
            row.get_by_role("link", name="Download").click()
        file = tmp_path / started.value.suggested_filename
        started.value.save_as(file)
        assert unpack(file, None).documents == 0
        assert re.fullmatch(r"\d{8}T\d{6}Z\.edge-rag", file.name)
        screenshot("box-backups", page)
        row.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("There is no backup on the box.")).to_be_visible()
        expect(made).to_be_visible()

        page.get_by_role("tab", name="Live").click()
        expect(card(page, "State")).to_contain_text("live")
        said = page.locator("#live p").count()
        own.kill()
        expect(card(page, "State")).to_contain_text("connection lost")
        last = data / "backups" / "last.json"
        last.write_text(json.dumps(json.loads(last.read_text()) | {"at": "2026-01-01T00:00:00+00:00"}))
        own = start_daemon(data, log, CONSOLE.replace("127.0.0.1:0", own.http.removeprefix("http://")))
        expect(page.get_by_text("The box was restarted").first).to_be_visible()
        expect(card(page, "State").locator(".badge").last).to_have_text("live")
        sentences = page.locator("#live p").all_inner_texts()[said:]
        assert [each.split(".")[0] for each in sentences] == ["connection lost, trying again", "The box was restarted"]

        # An old one is warned of, by more than a colour.
        page.get_by_role("tab", name="Backups and certificates").click()
        expect(page.locator(".alarm")).to_contain_text("The last backup was made on the box")
        expect(page.locator(".alarm svg")).to_be_visible()
    finally:
        own.kill()


def test_administrators_see_certificates_and_quotas_and_readers_what_is_theirs(
    open_page: Pages, box: Box, axe: Axe, screenshot: Screenshot
) -> None:
    def signed_in(name: str, path: str) -> Page:
        return open_page(path, daemon=box.running, headers={"authorization": f"Bearer {box.tokens[name]}"})

    rare = signed_in("rare", "/#/box")
    expect(rare.get_by_text("are shown to administrators")).to_be_visible()
    expect(rare.get_by_role("tab")).to_have_count(0)
    expect(rare.get_by_role("definition").filter(has_text="a: 1 document")).to_be_visible()
    assert [url for url in open_page.watch(rare).requests if re.search("status|audit|usage|backups", url)] == []
    axe(rare)
    page = signed_in("admin", "/#/box/backups")
    certificates = page.get_by_role("table", name="Certificates")
    expect(certificates.get_by_role("row").filter(has_text="server.pem")).to_contain_text(re.compile(r"82[45] days"))
    axe(page)
    page.get_by_role("tab", name="Usage").click()
    quota = page.locator(".card").filter(has=page.get_by_role("heading", name="rare", exact=True))
    expect(quota).to_contain_text("2 of 2")
    screenshot("box-usage", page)
