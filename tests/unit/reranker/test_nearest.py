import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import NearestReason
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Reranked, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.reranker.nearest import MOST_LACKING, MOST_NEAREST, nearest_passages

WEIGHTS = {"often": 1.0, "grease": 3.0, "bearings": 4.0, "annually": 2.0}
QUESTION = "How often do I grease the bearings annually?"


def ranked(text: str, *evidence: float, context: tuple[str, ...] = ()) -> RankedPassage:
    passage = Passage(ChunkId(1), DocumentId("d"), "manual.md", 3, 100, 100 + len(text), text, context)
    sentences = zip(sentence_spans(text), (*evidence, *[0.0] * 9), strict=False)
    return RankedPassage(passage, 1.0, tuple(Sentence(*span, each, each / 10) for span, each in sentences))


def test_a_passage_tells_the_words_that_it_lacks_and_its_closest_sentence() -> None:
    text = "The pump is greased. Ask how often."
    (found,) = nearest_passages(QUESTION, WEIGHTS, Reranked((ranked(text, 0.0, 2.0),), 0.125), judged=True)
    assert (found.passage, found.document, found.page, found.score) == (0, "manual.md", 3, 0.125)
    assert (found.text, found.start, found.end) == ("Ask how often.", 121, 135)
    assert (found.reason, found.lacks) == (NearestReason.LACKS_WORDS, ("bearings", "annually"))
    assert found.share == pytest.approx(0.4)
    assert found.similarity == pytest.approx(0.2)


def test_headings_count_and_forms_of_a_word_are_one() -> None:
    passage = ranked("Often greased.", context=("Bearing",))
    (found,) = nearest_passages(QUESTION, WEIGHTS, Reranked((passage,), 0.0), judged=True)
    assert found.lacks == ("annually",)


@pytest.mark.parametrize(
    ("question", "text", "judged", "reason"),
    [
        (QUESTION, "Grease bearings often; annually, that is.", True, NearestReason.NOT_SIMILAR),
        (QUESTION, "Grease bearings often; annually, that is.", False, NearestReason.NOT_SUPPORTED),
        (QUESTION, "The valve.", False, NearestReason.NOT_SUPPORTED),
        ("Как часто смазывать подшипники?", "The valve is closed before the pump.", True, NearestReason.OTHER_LANGUAGE),
    ],
)
def test_the_reason_is_what_kept_the_passage_from_being_an_answer(
    question: str, text: str, judged: bool, reason: NearestReason
) -> None:
    (found,) = nearest_passages(question, WEIGHTS, Reranked((ranked(text),), 0.1), judged)
    assert found.reason is reason


def test_few_passages_and_words_are_told_of_and_none_without_passages() -> None:
    words = {f"word{number}x": float(number) for number in range(20)}
    found = nearest_passages("?", words, Reranked((ranked("Nothing of it."),) * 9, 0.1), judged=True)
    assert [each.passage for each in found] == list(range(MOST_NEAREST))
    assert found[0].lacks == tuple(f"word{19 - number}x" for number in range(MOST_LACKING))
    assert nearest_passages("?", words, Reranked((), 0.0), judged=True) == ()


@given(
    st.lists(st.text(max_size=30).map(ranked), max_size=5),
    st.dictionaries(st.text(min_size=1, max_size=8), st.floats(0, 9), max_size=12),
    st.floats(0, 1),
)
def test_whatever_the_passages_are_what_is_told_is_stored_text_and_in_its_range(
    passages: list[RankedPassage], weights: dict[str, float], evidence: float
) -> None:
    for found in nearest_passages(QUESTION, weights, Reranked(tuple(passages), evidence), judged=True):
        passage = passages[found.passage].passage
        assert passage.text[found.start - passage.start : found.end - passage.start] == found.text
        assert 0.0 <= found.share <= 1.0
        assert 0.0 <= found.score <= 1.0
        assert set(found.lacks) <= weights.keys()
