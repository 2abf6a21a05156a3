"""Which sentences are quoted, by their evidence."""

import pytest

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.generator.quoting.answer import points_of
from edge_rag.generator.quoting.blocks import MAX_BLOCK_CHARACTERS


def ranked(text: str, *evidence: float) -> RankedPassage:
    spans = sentence_spans(text)
    values = (*evidence, *(0.0 for _ in spans[len(evidence) :]))
    sentences = tuple(Sentence(start, end, value) for (start, end), value in zip(spans, values, strict=True))
    return RankedPassage(Passage(ChunkId(1), DocumentId(text), "d", None, 0, len(text), text), 1.0, sentences)


def quoted(
    *passages: RankedPassage, question: str = "How often?", sentences: int = 1, margin: float = 4.0
) -> list[str]:
    return [point.quote.text for point in points_of(question, passages, sentences, margin)]


def test_the_sentence_with_the_most_evidence_is_quoted_whatever_its_passage() -> None:
    assert quoted(ranked("One. Two. Three.", 1, 3, 2), ranked("Four.", 2.5)) == ["Two."]


def test_further_sentences_follow_by_evidence_while_they_are_close_to_the_best() -> None:
    passages = ranked("One. Two. Three. Four.", 9, 4.9, 8, 7), ranked("Five.", 7.1)
    assert quoted(*passages, sentences=8) == ["One.", "Three.", "Five."]  # at most 4, 2, 1.33 below 9
    assert quoted(*passages, sentences=2) == ["One.", "Three."]
    assert quoted(*passages, sentences=8, margin=0.5) == ["One."]


def test_of_equal_evidence_the_better_passage_and_then_the_earlier_sentence_is_quoted() -> None:
    assert quoted(ranked("One. Two.", 1, 2), ranked("Three.", 2), sentences=2) == ["Two.", "Three."]
    assert quoted(ranked("One. Two.", 2, 2), sentences=2) == ["One.", "Two."]


def test_a_text_in_two_places_is_quoted_once_from_the_better_passage_with_the_larger_evidence() -> None:
    better, other = ranked("Same. Else.", 1, 0), ranked("Same. More.", 5, 4.5)
    points = points_of("q", (better, other), 2, 4.0)
    assert [(point.quote.passage, point.sentence) for point in points] == [(0, 0), (1, 1)]


def test_a_sentence_of_any_length_and_script_is_quoted_whole() -> None:
    for sentence in ("词" * 5000 + "。", "Слово " * 2000 + "конец."):
        assert quoted(ranked(sentence, 1)) == [sentence]


@pytest.mark.parametrize(
    "asked", ["How do I become root?", "如何成为根用户？", "كيف أصبح المستخدم الجذر؟", "Πώς γίνομαι διαχειριστής;"]
)
def test_a_question_gives_its_evidence_to_the_sentence_after_it(asked: str) -> None:
    entry = ranked(f"{asked}\nOpen a shell. Use su.", 9, 0, 1)
    assert quoted(entry, ranked("Root is a name.", 5)) == ["Open a shell."]


def test_a_heading_that_repeats_the_question_gives_its_evidence_to_what_follows() -> None:
    entry = ranked("Changing the oil filters\n\nDrain the oil first. Then turn the filter.", 9, 0, 1)
    assert quoted(entry, ranked("Oil is black.", 5), question="When does one change an oil filter?") == [
        "Drain the oil first."
    ]


def test_entries_of_a_list_of_questions_are_passed_over() -> None:
    contents = ranked("What is it?\nHow often is it changed?", 8, 9)
    assert quoted(contents, ranked("Every 500 hours.", 1)) == ["Every 500 hours."]
    assert quoted(contents) == ["How often is it changed?"]


def test_what_adds_a_word_to_the_question_is_an_answer() -> None:
    assert quoted(ranked("The filter is changed yearly.\n\nOther.", 9), question="When is the filter changed?") == [
        "The filter is changed yearly."
    ]


def test_a_sentence_without_spaces_is_compared_by_its_parts() -> None:
    asked = "泵的轴承每运行多少小时必须润滑一次"
    said = "泵的轴承每运行两千小时必须润滑一次。"
    assert quoted(ranked(f"{said}\n其他。", 9), question=asked) == [said]
    assert quoted(ranked("泵的轴承\n每两千小时润滑。", 9), question=asked) == ["泵的轴承\n每两千小时润滑。"]


@pytest.mark.parametrize("colon", [":", "\uff1a"])
def test_a_sentence_that_ends_with_a_colon_brings_the_lines_after_it(colon: str) -> None:
    text = f"Stop it. To list them, run{colon}\n\nls -l\nls -a\n\nThen log it."
    assert quoted(ranked(text, 0, 9)) == [f"To list them, run{colon}\n\nls -l\nls -a"]


def test_a_block_without_an_end_mark_brings_the_block_after_it() -> None:
    assert quoted(ranked("To list them, execute\n\nls -l\nls -a\n\nIt is done.", 9)) == [
        "To list them, execute\n\nls -l\nls -a"
    ]
    assert quoted(ranked("Greasing of pumps\n\nIt is done weekly. It is logged.", 9)) == [
        "Greasing of pumps\n\nIt is done weekly."
    ]


def test_a_line_of_a_list_or_table_stands_alone() -> None:
    text = "Greasing | weekly\nCleaning | daily\nTesting | yearly\n\nAll is logged."
    assert quoted(ranked(text, 0, 9)) == ["Cleaning | daily"]
    assert quoted(ranked(text, 0, 0, 9)) == ["Testing | yearly"]


def test_what_is_announced_ends_before_its_bound_and_is_not_quoted_again() -> None:
    lines = [f"- step {number} of the work" for number in range(100)]
    (text,) = quoted(ranked("\n".join(["Do this:", *lines]), 9))
    assert text.endswith("of the work")
    assert len("Do this:") < len(text) <= len("Do this:") + MAX_BLOCK_CHARACTERS
    assert quoted(ranked("Run:\n\nls -l", 8, 9), sentences=2) == ["ls -l"]
    assert quoted(ranked("Run:\n\nls -l", 9, 8), sentences=2) == ["Run:\n\nls -l"]


def test_without_a_sentence_there_is_no_quote() -> None:
    assert quoted(ranked("")) == []
