"""Asking in the console: what is offered, stopped, refused, lost, kept and taken along."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.e2e.console.conftest import Pages
from tests.e2e.support.browser import Watch, widest_overflow

QUESTION = "How often must the pump bearings be greased?"
QUOTE = "The pump bearings must be greased every 2,000 operating hours or every three months, whichever comes first."
ASK = "**/api/v1/ask"
HOSTILE = "<img src=x onerror=alert(1)> [link](http://192.0.2.1) **\u202egpj.exe** `x`"

Screenshot = Callable[..., Path]
Axe = Callable[[Page], None]


def field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Question")


def ask(page: Page, question: str = QUESTION) -> Locator:
    field(page).fill(question)
    field(page).press("Enter")
    answer = page.get_by_role("article").last
    expect(answer.get_by_role("button", name="Ask again")).to_be_visible()
    return answer


def is_question(request: Request) -> bool:
    return request.method == "POST" and request.url.endswith("/api/v1/ask")


def turns_of(sent: Request) -> list[dict[str, Any]]:
    body: dict[str, Any] = json.loads(sent.post_data or "")
    turns: list[dict[str, Any]] = body["turns"]
    return turns


def events(*parts: tuple[str, Any]) -> str:
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in parts)


def citation(text: str, start: int, answer_start: int, **more: Any) -> tuple[str, Any]:
    place = {"passage": 0, "document": "a.txt", "page": None, "start": start, "end": start + len(text), "text": text}
    span = {"answer_start": answer_start, "answer_end": answer_start + len(text), "language": None}
    return "citation", {**place, **span, **more}


def passages(name: str = "a.txt") -> tuple[str, Any]:
    text = {"text": "A passage.", "score": 1.5, "context": [name], "metadata": {}, "duplicates": []}
    passage = {"document_id": "0" * 20, "document": name, "page": 2, "start": 0, "end": 10, **text}
    told = {"question_language": "en", "standalone_question": None, "did_you_mean": None}
    return "passages", {"passages": [passage], "evidence": 0.9, **told}


def finished(reason: str = "stop", *nearest: dict[str, Any]) -> tuple[str, Any]:
    stages = [{"stage": "retriever", "queue_s": 0.001, "compute_s": 2.5}]
    timings = {"first_token_s": 0.1, "stages": stages}
    told = {"usage": {}, "timings": timings, "nearest": nearest, "prompt_passages": None}
    return "finished", {"finish_reason": reason, **told}


def answering(page: Page, body: str, status: int = 200, headers: dict[str, str] | None = None) -> None:
    """Answers questions in the place of the box, which never sends just this."""

    def answer(route: Route) -> None:
        if route.request.method == "GET":
            route.fallback()
            return
        media_type = "text/event-stream" if status == 200 else "application/json"
        route.fulfill(status=status, content_type=media_type, headers=headers or {}, body=body)

    page.route(ASK, answer)


def test_a_first_visit_shows_what_can_be_asked(page: Page, axe: Axe, screenshot: Screenshot) -> None:
    expect(page.get_by_role("heading", name="What do you want to know?")).to_be_visible()
    expect(page.get_by_role("list", name="Collections").get_by_role("button", name="default")).to_contain_text("11 doc")
    for mode, hint in {"quote": "word for word", "cite": "Every sentence is compared", "free": "can be wrong"}.items():
        page.get_by_label("Answer", exact=True).select_option(mode)
        expect(page.get_by_text(hint)).to_be_visible()
    expect(page.get_by_label("Sentences, at most")).to_be_hidden()
    axe(page)
    screenshot("ask-first-visit")


def test_a_box_without_documents_or_language_model_says_so(open_page: Pages, axe: Axe, screenshot: Screenshot) -> None:
    page = open_page(None)
    known = {"collections": [{"name": "a", "documents": 0, "settings": {"title": "", "description": ""}}]}
    page.route("**/api/v1/collections", lambda route: route.fulfill(json=known))
    page.goto("/")
    expect(page.get_by_text("This box has no documents yet")).to_be_visible()
    expect(page.get_by_role("link", name="Add documents")).to_have_attribute("href", "#/documents")
    expect(field(page)).to_be_hidden()
    axe(page)
    screenshot("ask-no-documents", page)
    page.unroute("**/api/v1/collections")
    options = page.request.get("/api/v1/ask").json() | {"modes": ["quote"], "language_model": None}
    page.route(ASK, lambda route: route.fulfill(json=options) if route.request.method == "GET" else route.fallback())
    page.reload()
    expect(page.get_by_text("need a language model")).to_be_visible()
    assert page.get_by_label("Answer", exact=True).count() == 0
    expect(ask(page)).to_contain_text(QUOTE)


def test_a_question_in_the_address_is_asked_at_once_and_once_only(open_page: Pages, axe: Axe) -> None:
    page = open_page(f"/#/ask?q={QUESTION.replace('?', '%3F')}&collection=default")
    answer = page.get_by_role("article", name=QUESTION)
    expect(answer).to_contain_text(QUOTE)
    axe(page)
    page.reload()
    expect(page.get_by_role("article")).to_have_count(1)


@pytest.mark.parametrize(("mode", "label"), [("quote", "quoted"), ("cite", "checked"), ("free", "unchecked")])
def test_every_answer_says_how_it_was_written(page: Page, mode: str, label: str) -> None:
    page.get_by_label("Answer", exact=True).select_option(mode)
    answer = ask(page)
    expect(answer.locator(".badge").first).to_have_text(label)
    assert answer.get_by_text("nothing is checked").count() == (mode == "free")


def test_sentences_are_cut_where_the_box_says_though_browsers_count_otherwise(
    page: Page, axe: Axe, screenshot: Screenshot
) -> None:
    first, second, third = "Öl 🛢️ und 👩‍🔧 täglich.", "𝔊𝔯𝔢𝔞𝔰𝔢 weekly.", "Nobody says 🤷 this."
    text = f"{first} {second} {third}"
    begin = len(first) + len(second) + 2
    answering(
        page,
        events(
            passages(),
            ("text", {"text": text}),
            citation(first, 0, 0),
            citation(second, 90, len(first) + 1),
            ("unsupported", {"start": begin, "end": begin + len(third)}),
            finished(),
        ),
    )
    page.get_by_label("Answer", exact=True).select_option("cite")
    answer = ask(page)
    assert answer.locator(".answer-cited").all_inner_texts() == [first, second]
    assert answer.locator(".unsupported").all_inner_texts() == [third]
    # In words, not by a colour alone.
    expect(answer).to_contain_text("no passage supports this")
    assert answer.locator(".answer-text .ref").all_inner_texts() == ["1", "2"]
    axe(page)
    screenshot("ask-unsupported")


def test_a_follow_up_is_searched_for_with_what_it_leaves_to_the_turns_before_it(page: Page, axe: Axe) -> None:
    page.get_by_label("Answer", exact=True).select_option("quote")
    first = ask(page)
    expect(first.locator(".searched")).to_be_hidden()
    with page.expect_request(is_question) as sent:
        answer = ask(page, "And how long is the plug left open after greasing them?")
    (turn,) = turns_of(sent.value)
    assert turn["question"] == QUESTION
    assert QUOTE in turn["answer"]
    assert {each["document"] for each in turn["sources"]} == {"lubrication-schedule.md"}
    assert "Pumps P1, P2 and P3" in [heading for each in turn["sources"] for heading in each["section"]]
    expect(answer.locator(".searched")).to_contain_text(re.compile("Searched for as well: .*bearings"))
    expect(answer.locator(".answer-text")).to_contain_text("20 minutes")
    axe(page)
    # It follows the same turns when it is asked again, and none in a new conversation.
    with page.expect_request(is_question) as sent:
        answer.get_by_role("button", name="Ask again").click()
    assert turns_of(sent.value) == [turn]
    expect(page.get_by_role("article").last.get_by_role("button", name="Ask again")).to_be_visible()
    page.get_by_role("link", name="New conversation").click()
    with page.expect_request(is_question) as sent:
        ask(page)
    assert turns_of(sent.value) == []


def test_a_misspelled_question_is_answered_and_told_how_it_was_read(page: Page) -> None:
    page.get_by_label("Answer", exact=True).select_option("quote")
    answer = ask(page, "how offten do I have to grese the bearngs of the pmp")
    expect(answer.locator(".searched")).to_contain_text("Did you mean")
    expect(answer.locator(".searched")).to_contain_text("to grease the bearings of the pump")
    expect(answer.locator(".answer-text")).to_contain_text("2,000 operating hours")
    page.reload()
    expect(page.locator(".searched")).to_contain_text("to grease the bearings of the pump")


def test_what_is_nearest_tells_what_it_lacks_and_leads_to_its_place(page: Page, axe: Axe) -> None:
    page.get_by_label("Answer", exact=True).select_option("quote")
    answer = ask(page, "Which colour has the president's bicycle?")
    expect(answer.get_by_role("heading", name="Nearest passages")).to_be_visible()
    expect(answer.get_by_role("listitem").first).to_contain_text(re.compile("lacks: .*bicycle"))
    axe(page)
    answer.get_by_role("listitem").first.get_by_role("button").click()
    expect(page.locator(".source-pane mark, .source-pane .cited").first).to_be_visible()


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("lacks_words", "lacks: bicycle, president"),
        ("not_similar", "no sentence is close enough"),
        ("other_language", "in another language"),
        ("not_supported", "does not support what the model wrote"),
    ],
)
def test_why_a_passage_is_no_answer_is_said_as_it_was_decided(page: Page, reason: str, shown: str) -> None:
    place = {"passage": 0, "document": "a.txt", "page": None, "start": 0, "end": 10, "text": "A passage.", "score": 0.1}
    near = {**place, "reason": reason, "lacks": ["bicycle", "president"], "share": 0.5, "similarity": 0.2}
    nothing = ("text", {"text": "I could not find that."})
    answering(page, events(passages(), nothing, finished("not_found", near)))
    item = ask(page).get_by_role("listitem")
    expect(item).to_contain_text(shown)
    expect(item).to_contain_text("score 0.1")


def test_where_a_quote_is_and_that_it_is_only_for_context_is_told(page: Page, axe: Axe) -> None:
    subject, point = "The pump has two bearings.", "Grease them weekly."
    more = {"section": ["Manual", "Pumps"], "line": 7}
    quotes = (
        citation(subject, 0, 0, context=True, **more),
        citation(point, 40, len(subject) + 1, context=False, **more),
    )
    answering(page, events(passages(), ("text", {"text": f"{subject} {point}"}), *quotes, finished()))
    answer = ask(page)
    items = answer.get_by_role("listitem")
    expect(items.first).to_contain_text("line 7 · Manual › Pumps")
    expect(items.first).to_contain_text("what the next quote is about")
    expect(items.last).not_to_contain_text("next quote")
    assert answer.locator(".for-context").all_inner_texts() == [subject]
    axe(page)


def test_a_quote_is_shown_to_pointer_and_keyboard_and_goes_by_escape(page: Page) -> None:
    page.get_by_label("Answer", exact=True).select_option("quote")
    page.get_by_label("Sentences, at most").select_option("1")
    source = ask(page).locator(".answer-text .ref").first
    tip = page.get_by_role("tooltip")
    source.hover()
    expect(tip).to_contain_text(QUOTE)
    tip.hover()
    expect(tip).to_be_visible()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    field(page).focus()
    while not source.evaluate("each => each === document.activeElement"):
        page.keyboard.press("Shift+Tab")
    expect(tip).to_contain_text("lubrication-schedule.md")
    assert source.get_attribute("aria-describedby") == tip.get_attribute("id")


def test_hostile_names_and_texts_are_texts(page: Page, axe: Axe) -> None:
    answering(
        page,
        events(
            passages(HOSTILE), ("text", {"text": HOSTILE}), citation(HOSTILE, 0, 0, document=HOSTILE * 200), finished()
        ),
    )
    answer = ask(page, HOSTILE)
    assert answer.locator("img, a").count() == 0
    for each in (answer.locator(".place-name"), answer.locator(".snippet"), answer.locator(".answer-cited")):
        expect(each.first).to_contain_text("⟨U+202E⟩gpj.exe")
    assert "\u202e" not in page.inner_text("body")
    page.set_viewport_size({"width": 360, "height": 800})
    assert widest_overflow(page) == 0
    axe(page)


def test_an_answer_is_stopped_and_the_question_can_be_asked_again(page: Page) -> None:
    held: list[Route] = []
    page.route(ASK, lambda route: held.append(route) if route.request.method == "POST" else route.fallback())
    field(page).fill(QUESTION)
    field(page).press("Enter")
    answer = page.get_by_role("article", name=QUESTION)
    expect(answer.locator("[aria-busy=true]")).to_be_visible()
    expect(field(page)).to_be_focused()
    page.get_by_role("button", name="Stop").click()
    expect(answer).to_contain_text("Stopped")
    held[0].abort()
    page.unroute(ASK)
    answer.get_by_role("button", name="Ask again").click()
    expect(page.get_by_role("article", name=QUESTION).last).to_contain_text("Sources")


def test_a_refused_filter_is_explained_beside_it_and_a_builder_writes_right_ones(page: Page, watch: Watch) -> None:
    watch.allow("status of 400")
    page.locator("summary").click()
    text = page.get_by_role("textbox", name="Filter")
    text.fill("title = ")
    field(page).fill(QUESTION)
    field(page).press("Enter")
    expect(text).to_have_attribute("aria-invalid", "true")
    expect(text).to_be_focused()
    expect(page.get_by_text("the filter ends here")).to_be_visible()
    expect(field(page)).to_have_value(QUESTION)
    assert page.get_by_role("article").count() == 0
    text.fill("")
    for key, comparison, value in (("name", "~", 'oper"'), ("title", "=", "Operating manual")):
        page.get_by_label("Field").fill(key)
        page.get_by_label("Comparison").select_option(comparison)
        page.get_by_label("Value").fill(value)
        page.get_by_role("button", name="Add", exact=True).click()
    expect(text).to_have_value('name ~ "oper\\"*" and title = "Operating manual"')
    text.fill(text.input_value().replace('\\"', ""))
    answer = ask(page, "Which pressure is allowed in the rising main?")
    assert set(answer.locator(".places strong").all_inner_texts()) == {"operating-manual.pdf"}


@pytest.mark.parametrize(
    ("status", "body", "headers", "shown"),
    [
        (503, {"message": "full", "code": "overloaded"}, {"retry-after-ms": "7000"}, "full Try again in 7 sec"),
        (429, {"message": "quota", "code": "quota_exceeded"}, {"retry-after-ms": "61000"}, "Try again in 1 minute"),
        (403, {"message": "role", "code": "permission_denied"}, {}, "You may not do this: role"),
    ],
)
def test_a_refusal_says_what_to_do_and_keeps_the_question(
    page: Page, watch: Watch, status: int, body: dict[str, str], headers: dict[str, str], shown: str
) -> None:
    watch.allow(f"status of {status}")
    answering(page, json.dumps({"error": body}), status, headers)
    answer = ask(page)
    expect(answer).to_contain_text(shown)
    page.unroute(ASK)
    answer.get_by_role("button", name="Ask again").first.click()
    expect(page.get_by_role("article", name=QUESTION).last).to_contain_text("Sources")


def test_a_lost_network_and_an_answer_that_breaks_off_are_told_apart(page: Page, watch: Watch) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    expect(field(page)).to_be_visible()
    page.context.set_offline(True)
    expect(ask(page)).to_contain_text("cannot be reached. Your question is kept")
    page.context.set_offline(False)
    answering(page, events(passages(), ("text", {"text": "The pump"})))
    answer = ask(page)
    expect(answer).to_contain_text("The pump")
    expect(answer).to_contain_text("broke off")
    page.unroute(ASK)
    answering(page, events(passages(), ("text", {"text": "Words"}), finished("length")))
    expect(ask(page)).to_contain_text("cut off at its greatest length")


def test_the_time_of_an_answer_is_explained_on_demand(page: Page, axe: Axe, screenshot: Screenshot) -> None:
    answer = ask(page)
    time = answer.get_by_role("button", name=re.compile("why"))
    expect(time).to_have_attribute("aria-expanded", "false")
    time.click()
    # The decisions about this very request, by its id.
    panel = page.locator(f"#{time.get_attribute('aria-controls')}")
    expect(panel.get_by_role("listitem").nth(1)).to_be_visible()
    expect(panel).to_contain_text("Retriever")
    axe(page)
    screenshot("ask-time")
    # A request that the box knows nothing of any more is explained by what its answer told.
    answering(page, events(passages(), ("text", {"text": "Words."}), finished()))
    answer = ask(page)
    answer.get_by_role("button", name="2.5 sec: why?").click()
    expect(answer.locator(".timing")).to_contain_text("Retriever")


def test_a_rating_is_kept_on_the_box_and_the_text_only_if_that_was_said(page: Page, axe: Axe) -> None:
    def kept() -> dict[str, Any]:
        found: dict[str, Any] = page.request.get("/api/v1/feedback").json()["feedback"][0]
        return found

    answer = ask(page)
    answer.get_by_role("button", name="This helped").click()
    expect(answer).to_contain_text("The box keeps for its operator")
    axe(page)
    answer.get_by_role("button", name="Send").click()
    expect(page.get_by_text("The box has kept it").first).to_be_visible()
    first = kept()
    assert (first["rating"], first["note"]) == ("up", "")
    assert (first["question"], first["answer"], first["collection"]) == ("", "", "")
    expect(answer.get_by_role("button", name="This helped")).to_be_focused()

    answer = ask(page, "Where is the control room?")
    answer.get_by_role("button", name="This did not help").click()
    answer.get_by_role("textbox", name="Note").fill("Which door?")
    answer.get_by_role("checkbox").check()
    answer.get_by_role("button", name="Send").click()
    expect(answer.get_by_role("button", name="This did not help")).to_be_focused()
    second = kept()
    assert (second["rating"], second["note"]) == ("down", "Which door?")
    assert second["question"] == "Where is the control room?"
    assert second["collection"] == "default"
    assert second["answer"]
    page.reload()
    pressed = page.get_by_role("article").last.get_by_role("button", name="This did not help")
    expect(pressed).to_have_attribute("aria-pressed", "true")


def test_an_answer_is_copied_where_a_page_without_tls_has_no_clipboard(open_page: Pages) -> None:
    page = open_page(None)
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'clipboard', { value: undefined })")
    page.goto("/")
    page.get_by_label("Answer", exact=True).select_option("quote")
    ask(page).get_by_role("button", name="Copy").click()
    expect(page.locator("#notices")).to_contain_text("Copied.")
    field(page).press("Control+V")
    copied = field(page).input_value()
    assert QUESTION in copied
    assert QUOTE in copied


def test_conversations_are_kept_renamed_and_deleted_in_this_browser(page: Page, screenshot: Screenshot) -> None:
    page.get_by_label("Answer", exact=True).select_option("quote")
    ask(page)
    page.get_by_role("link", name="New conversation").click()
    expect(page.get_by_role("heading", name="What do you want to know?")).to_be_visible()
    ask(page, "Where is the control room?")
    kept = page.get_by_role("navigation", name="Conversations")
    expect(kept.get_by_role("listitem")).to_have_count(2)
    screenshot("ask-conversations")
    kept.get_by_role("link", name=QUESTION).click()
    expect(page.get_by_role("article", name=QUESTION)).to_contain_text(QUOTE)
    kept.get_by_role("button", name=f"Rename {QUESTION}").click()
    page.get_by_role("textbox", name="Name").fill("Greasing")
    page.get_by_role("button", name="Save").click()
    page.reload()
    expect(page.get_by_role("heading", name="Greasing")).to_be_visible()
    kept.get_by_role("button", name="Delete Greasing").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="What do you want to know?")).to_be_visible()
    expect(kept.get_by_role("listitem")).to_have_count(1)


def test_a_draft_outlives_the_page(page: Page) -> None:
    field(page).fill("How oft")
    page.reload()
    expect(field(page)).to_have_value("How oft")
    field(page).press("Shift+Enter")
    assert field(page).input_value() == "How oft\n"
    assert page.get_by_role("article").count() == 0


def test_a_conversation_is_exported_as_markdown_in_which_nothing_foreign_has_a_meaning(page: Page) -> None:
    name = f"{HOSTILE}\n# heading"
    text = f"1. First {HOSTILE}\n- second\n\n    code & <b>bold</b> www.example.org"
    answering(page, events(passages(name), ("text", {"text": text}), citation(text, 0, 0, document=name), finished()))
    ask(page, HOSTILE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the conversation as Markdown").click()
    assert re.fullmatch(r"[\w-]{1,60}\.md", saved.value.suggested_filename)
    markdown = Path(saved.value.path()).read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").parse(markdown)
    inline = [part for token in tokens for part in token.children or []]
    assert {part.type for part in inline} <= {"text", "text_special", "softbreak", "hardbreak", "strong_open"} | {
        "strong_close",
        "em_open",
        "em_close",
    }
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_block", "code_block", "fence", "table_open", "bullet_list_open", "hr"}
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2"]
    shown = "".join(part.content or "\n" for part in inline)
    visible = HOSTILE.replace("\u202e", "⟨U+202E⟩")
    assert f"1. First {visible}\n- second\ncode & <b>bold</b> www.example.org [1]" in shown
    assert f"{visible} # heading" in shown
    assert "page 2" not in shown  # the citation has no page
    assert kinds >= {"blockquote_open", "ordered_list_open"}


def evaluate(page: Page, module: str, body: str, *arguments: Any) -> Any:
    script = f"""async (given) => {{
        const base = document.documentElement.dataset.base;
        const it = await import(`${{base}}/ask/{module}.js`);
        {body}
    }}"""
    return page.evaluate(script, list(arguments))


def test_what_a_browser_keeps_is_bounded_and_the_oldest_goes_first(page: Page) -> None:
    kept = evaluate(
        page,
        "conversation",
        """
        const bounds = { conversations: 5, answers: 8, characters: 4000 };
        const results = [];
        let state = 7;
        const random = (below) => (state = (state * 48271) % 2147483647) % below;
        for (let round = 0; round < 200; round++) {
          const all = Array.from({ length: random(9) }, (_, id) => ({
            id, updated: random(100), dropped: 0,
            turns: Array.from({ length: random(12) }, (_, at) => ({ at, answer: 'x'.repeat(random(900)) })),
          }));
          const found = it.bounded(all, bounds);
          results.push({ all, found, characters: JSON.stringify(found).length });
        }
        return results;""",
    )
    assert any(len(each["found"]) < len(each["all"]) for each in kept)
    for each in kept:
        everything, found = each["all"], each["found"]
        assert len(found) <= 5
        assert sum(len(one["turns"]) for one in found) <= 8
        assert each["characters"] <= 4000 + 2 + len(found)  # brackets and commas of the list
        latest = sorted(everything, key=lambda one: -one["updated"])
        assert [one["id"] for one in found] == [one["id"] for one in latest[: len(found)]]
        for one, whole in zip(found, latest, strict=False):
            assert one["turns"] == whole["turns"][len(whole["turns"]) - len(one["turns"]) :]
            assert one["dropped"] == len(whole["turns"]) - len(one["turns"])


def test_a_question_carries_so_many_turns_as_the_box_reads(page: Page) -> None:
    carried = evaluate(
        page,
        "conversation",
        """
        const text = { text: 'x', section: 'S' };
        const citation = (at) => ({ document_id: 'a', document: 'a.txt', start: at, end: at + 1, ...text });
        const turn = (at, more) => ({ question: `${at}`, answer: '', citations: [], state: 'done', ...more });
        const many = Array.from({ length: 11 }, (_, at) => turn(at));
        const long = many.slice(0, 3).map((each) => ({ ...each, answer: 'x'.repeat(60_000) }));
        const cited = turn(0, { citations: Array.from({ length: 99 }, (_, at) => citation(at >> 1)) });
        const failed = turn(1, { state: 'failed' });
        return [many, long, [cited, failed]].map(it.carried);""",
    )
    many, long, (cited,) = carried
    assert [each["question"] for each in many] == [str(number) for number in range(4, 11)]
    assert [each["question"] for each in long] == ["1", "2"]
    assert cited["sources"] == [{"document": "a.txt", "section": ["S"], "text": "x"}] * 32


def test_positions_of_characters_are_those_of_python(page: Page) -> None:
    text = "a🛢️é\u0301𝔊 中\u202e👩‍🔧z"
    cuts = [(start, end) for start in range(len(text)) for end in range(start + 1, len(text) + 1)]
    script = """return given[1].map(([answer_start, answer_end]) => {
            const parts = it.parts(given[0], [{ answer_start, answer_end }], []);
            return [parts.find((each) => each.citations.length).text, parts.map((each) => each.text).join('')];
        });"""
    assert evaluate(page, "ranges", script, text, cuts) == [[text[start:end], text] for start, end in cuts]


def test_sentences_are_told_whole_however_the_text_arrives(page: Page) -> None:
    text = "Grease it daily. Is 3.5 bar allowed? No! Then stop."
    script = """return given[1].map((size) => {
        const sentences = new it.Sentences();
        const told = [];
        for (let at = 0; at < given[0].length; at += size) {
            told.push(...sentences.append(given[0].slice(at, at + size)));
        }
        return [...told, ...sentences.append('', true)];
    });"""
    whole = ["Grease it daily.", "Is 3.5 bar allowed?", "No!", "Then stop."]
    assert evaluate(page, "ranges", script, text, [1, 2, 7, 1000]) == [whole] * 4
