"""Stop strings and the checked stream of CITE mode."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from edge_rag.core.answer import Citation, TextDelta, Unsupported, UnsupportedText
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.citations.sentence_splitter import AnswerSentence, SentenceSplitter
from edge_rag.generator.cite_stream import CheckedText
from edge_rag.generator.streams import AnswerPart, StopMatcher
from edge_rag.reranker.scoring import Stemmer

pieces = st.lists(st.text("ab\n", max_size=4), max_size=12)
stops = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


@given(pieces, stops)
@example(["a", "ab"], ["aab"])
@example(["aa", "b"], ["ab", "aab"])
def test_the_text_ends_before_the_first_stop_string_for_any_chunking(texts: list[str], strings: list[str]) -> None:
    matcher = StopMatcher(strings)
    emitted = "".join(matcher.feed(text) for text in texts) + matcher.flush()
    whole = "".join(texts)
    found = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in strings if stop in whole]
    assert matcher.stopped == bool(found)
    assert emitted == (whole[: min(found)[1]] if found else whole)


@given(pieces, stops)
def test_a_possible_prefix_of_a_stop_string_is_held_back(texts: list[str], strings: list[str]) -> None:
    matcher = StopMatcher(strings)
    emitted = whole = ""
    for text in texts:
        emitted, whole = emitted + matcher.feed(text), whole + text
        if not matcher.stopped:
            prefixes = [len(whole) - n for stop in strings for n in range(1, len(stop)) if whole.endswith(stop[:n])]
            assert len(emitted) == min(prefixes, default=len(whole))


def test_other_text_is_emitted_at_once() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.feed("hello E") == "hello "
    assert matcher.feed("x") == "Ex"


PUMP = "The pump is greased every 2,000 hours. Use lithium grease."
VALVE = "Never open the check valve. Shut the suction valve first."


def ranked(number: int, text: str) -> RankedPassage:
    begin = 100 * number
    passage = Passage(ChunkId(number), DocumentId(f"d{number}"), f"{number}.md", number, begin, begin + len(text), text)
    return RankedPassage(passage, 1.0, tuple(Sentence(start, end) for start, end in sentence_spans(text)))


OFFERED = [ranked(1, PUMP), ranked(2, VALVE)]
PASSAGES = [each.passage for each in OFFERED]


def checked(unsupported: UnsupportedText = UnsupportedText.MARK) -> CheckedText:
    return CheckedText(PASSAGES, range(len(PASSAGES)), Attributor(OFFERED, Stemmer()), unsupported)


def events(
    pieces: Sequence[str], unsupported: UnsupportedText = UnsupportedText.MARK, complete: bool = True
) -> list[AnswerPart]:
    text = checked(unsupported)
    return [event for piece in pieces for event in text.feed(piece)] + text.flush(complete)


def shown(parts: Sequence[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


GREASED, SHUT = "The pump is greased every 2,000 hours.", "Shut the suction valve first."
CHEESE = "It is made of cheese."


def test_each_sentence_is_followed_by_its_citations() -> None:
    assert events([f"{GREASED} {SHUT}"]) == [
        TextDelta(GREASED),
        Citation(0, "1.md", 1, 100, 138, GREASED, 0, 38),
        TextDelta(f" {SHUT}"),
        Citation(1, "2.md", 2, 228, 257, SHUT, 39, 68),
    ]


def test_a_complete_sentence_is_emitted_before_the_next_one_is() -> None:
    text = checked()
    assert text.feed(f"{GREASED} ") == []
    assert [type(event) for event in text.feed("Shut")] == [TextDelta, Citation]


def test_markers_are_removed_and_a_wrong_one_is_replaced() -> None:
    marked = "The pump is greased every 2,000 hours [2]. [1, 7] Shut the suction valve [99] first.[2][1–2]"
    parts = events([marked])
    assert shown(parts) == f"{GREASED} {SHUT}"
    assert [part.passage for part in parts if isinstance(part, Citation)] == [0, 1]


def test_an_unsupported_sentence_is_marked_or_dropped() -> None:
    written = [f"{GREASED} {CHEESE} {SHUT}"]
    marked = events(written)
    assert shown(marked) == f"{GREASED} {CHEESE} {SHUT}"
    assert [part for part in marked if isinstance(part, Unsupported)] == [Unsupported(39, 60)]
    omitted = events(written, UnsupportedText.OMIT)
    assert shown(omitted) == f"{GREASED} {SHUT}"
    assert not any(isinstance(part, Unsupported) for part in omitted)


def test_unsupported_sentences_are_held_back_until_the_first_supported_one() -> None:
    text = checked()
    assert text.feed(f"{CHEESE} {CHEESE} Th") == []
    parts = text.feed(f"{GREASED[2:]} N")
    assert [type(part) for part in parts] == [TextDelta, Unsupported, TextDelta, Unsupported, TextDelta, Citation]
    assert shown(parts) == f"{CHEESE} {CHEESE} {GREASED}"


def test_without_support_nothing_is_emitted() -> None:
    text = checked()
    assert text.feed(f"{CHEESE} And {CHEESE}") + text.flush(complete=True) == []
    assert not text.supported


def test_a_truncated_sentence_has_no_support() -> None:
    cut = events([f"{GREASED} Shut the suction valve"], complete=False)
    assert isinstance(cut[-1], Unsupported)
    assert isinstance(events([f"{GREASED} Shut the suction valve"])[-1], Citation)
    assert isinstance(events([f"{GREASED} {SHUT}"], complete=False)[-1], Citation)


def test_a_list_keeps_its_lines_and_item_numbers_are_no_claims() -> None:
    lines = ["According to Hale, use lithium grease:", "3. Use lithium grease.", "- Shut the suction valve first."]
    parts = events(["\n".join(lines)])
    assert shown(parts).splitlines() == lines
    assert not any(isinstance(part, Unsupported) for part in parts)


FRAGMENTS = (
    GREASED,
    SHUT,
    CHEESE,
    " ",
    "\n",
    "  ",
    "[1]",
    "[2]",
    " [3]",
    "[1, 2]",
    "[",
    "]",
    "[12",
    "1. ",
    "- ",
    "Dr.",
)
SCRIPTS = ("他走了。", "「何？」", "と", " यह है। ", " z. B. ", " Το νερό; Α", "ไ" * 30, "ไ" * 50 + " ", '"')
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.sampled_from(SCRIPTS) | st.text(max_size=4), max_size=12).map("".join)


@given(TEXTS, st.data(), st.sampled_from(UnsupportedText), st.booleans())
def test_the_events_do_not_depend_on_chunking(
    text: str, data: st.DataObject, unsupported: UnsupportedText, complete: bool
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    expected = events([text], unsupported, complete)
    assert events(pieces, unsupported, complete) == expected
    assert events(list(text), unsupported, complete) == expected


@given(TEXTS, st.sampled_from(UnsupportedText))
def test_spans_refer_to_the_emitted_text_and_citations_to_the_passages(text: str, unsupported: UnsupportedText) -> None:
    parts = events([text], unsupported)
    answer = shown(parts)
    last = ""
    for part in parts:
        match part:
            case TextDelta():
                last = part.text.strip()
            case Citation():
                passage = PASSAGES[part.passage]
                assert passage.text[part.start - passage.start : part.end - passage.start] == part.text
                assert answer[part.answer_start : part.answer_end] == last
            case Unsupported():
                assert answer[part.answer_start : part.answer_end] == last
    assert parts == [] or any(isinstance(part, Citation) for part in parts)


@given(TEXTS)
def test_sentences_contain_every_visible_character_except_markers(text: str) -> None:
    text = text.replace("]", ")")
    cutter = SentenceSplitter()
    sentences: list[AnswerSentence] = cutter.feed(text) + cutter.flush(complete=True)
    assert "".join("".join(each.text.split()) for each in sentences) == "".join(text.split())


def test_cite_mode_markers_use_prompt_numbers_and_citations_use_ranks() -> None:
    text = CheckedText(PASSAGES, (1, 0), Attributor(OFFERED, Stemmer()), UnsupportedText.MARK)
    events = [*text.feed("Never open the check valve [1]. Use lithium grease [2]."), *text.flush(complete=True)]
    assert [event.passage for event in events if isinstance(event, Citation)] == [1, 0]
