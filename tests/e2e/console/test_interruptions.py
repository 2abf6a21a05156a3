"""What happens to a user's work when the token is revoked, or the box goes down, while a question is asked."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.console.conftest import Pages
from tests.e2e.support.console import ask, question_field
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents, start_daemon
from tests.e2e.support.secured_daemon import Box, edge_rag, token

Screenshot = Callable[..., Path]

QUESTION = "How often must the pump bearings be greased?"
LONG = {"type": "array", "items": {"type": "string", "minLength": 8}, "minItems": 100_000}
"""What takes a model longer to write than a daemon to end."""


def test_a_token_revoked_between_two_questions_costs_nothing_but_signing_in_again(
    box: Box, open_page: Pages, screenshot: Screenshot
) -> None:
    page = open_page(None, daemon=box.running)
    open_page.watch(page).allow(r"status of 401 \(Unauthorized\)")
    page.goto("/")
    page.get_by_label("Token").fill(token("watch-1", box.data, "--collections", "a"))
    page.keyboard.press("Enter")
    ask(page, "When does the galley open?")
    edge_rag("token", "revoke", "watch-1", data=box.data)
    question_field(page).fill("When does the galley close?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    screenshot("signed-out", page)
    page.get_by_label("Token").fill(token("watch-1", box.data, "--collections", "a"))
    page.keyboard.press("Enter")
    # The first answer is there, and so is the question that was refused.
    expect(page.get_by_role("article", name="When does the galley open?")).to_contain_text("six in the morning")
    refused = page.get_by_role("article", name="When does the galley close?")
    expect(refused).to_contain_text("Sign in, then ask again")
    refused.get_by_role("button", name="Ask again").first.click()
    answered = page.get_by_role("article", name="When does the galley close?").last
    expect(answered).to_contain_text("nine in the evening")
    expect(page.get_by_role("article")).to_have_count(3)


@pytest.fixture
def fixed_port(tmp_path: Path) -> Iterator[Callable[[], RunningDaemon]]:
    """Starts a daemon, and again after it ended, at the same address and with the same documents."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    config = f'[http]\nenabled = true\naddress = "127.0.0.1:{port}"\n[limits]\ndrain_seconds = 0\n'
    started: list[RunningDaemon] = []

    def start() -> RunningDaemon:
        started.append(start_daemon(tmp_path / "data", tmp_path / f"log-{len(started)}", config))
        return started[-1]

    yield start
    for running in started:
        running.kill()


def test_a_box_that_restarts_amid_an_answer_is_asked_again_without_loading_the_page(
    fixed_port: Callable[[], RunningDaemon], open_page: Pages, screenshot: Screenshot
) -> None:
    running = fixed_port()
    ingest(running.address, sample_documents())
    page = open_page(daemon=running)
    open_page.watch(page).allow("ERR_(CONNECTION|INCOMPLETE|EMPTY|NETWORK|SOCKET)")
    loaded = page.evaluate("() => performance.timeOrigin")
    ask(page, QUESTION)

    def lengthen(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        body |= {"mode": "free", "json_schema": LONG, "max_tokens": 1024}
        body.pop("max_sentences", None)
        route.continue_(post_data=json.dumps(body))

    page.route("**/api/v1/ask", lengthen)
    question_field(page).fill("Which oil is used?")
    page.keyboard.press("Enter")
    broken = page.get_by_role("article", name="Which oil is used?")
    expect(broken).to_contain_text('["')
    running.kill()
    expect(broken).to_contain_text("The answer broke off")
    screenshot("box-gone", page)
    page.unroute("**/api/v1/ask")

    broken.get_by_role("button", name="Ask again").first.click()
    unreachable = page.get_by_role("article", name="Which oil is used?").last
    expect(unreachable).to_contain_text("The box cannot be reached")
    fixed_port()
    unreachable.get_by_role("button", name="Ask again").first.click()
    answered = page.get_by_role("article", name="Which oil is used?").last
    expect(
        answered.get_by_role("heading", name="Sources").or_(answered.get_by_text("Nearest passages"))
    ).to_be_visible()
    expect(page.get_by_role("article", name=QUESTION)).to_contain_text("2,000 operating hours")
    assert page.evaluate("() => performance.timeOrigin") == loaded
