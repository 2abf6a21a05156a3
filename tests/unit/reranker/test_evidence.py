from collections.abc import Mapping

import numpy as np
import pytest

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.reranker.candidate import EncodedPassage, RerankCandidate, compare, model_text
from edge_rag.reranker.evidence import Answerability, EvidenceWeights, WeightedSentences, weigh_sentences
from edge_rag.reranker.scoring import weights_by_term
from edge_rag.runtime.encoder.text_encoder import TokenVectors


def passage(text: str, context: tuple[str, ...] = ()) -> Passage:
    return Passage(ChunkId(1), DocumentId("d"), "manual.md", None, 0, len(text), text, context)


def one_hot_words(text: str, vocabulary: list[str]) -> TokenVectors:
    """A vector a word: a direction of its own for each word of the vocabulary, and one for all others."""
    offsets, at = [], 0
    words = text.split()
    for word in words:
        at = text.index(word, at)
        offsets.append((at, at + len(word)))
        at += len(word)
    rows = [vocabulary.index(word.strip(".?")) if word.strip(".?") in vocabulary else -1 for word in words]
    vectors = np.eye(len(vocabulary) + 1, dtype=np.float32)[rows].reshape(len(words), len(vocabulary) + 1)
    return TokenVectors(vectors, np.array(offsets, dtype=np.int32).reshape(-1, 2))


VOCABULARY = ["how", "often", "grease", "bearings", "month"]


def candidates(question: str, *passages: Passage) -> tuple[RerankCandidate, ...]:
    return compare(
        one_hot_words(question, VOCABULARY),
        passages,
        [EncodedPassage.of(each, one_hot_words(model_text(each), VOCABULARY)) for each in passages],
    )


def weigh(
    question: str,
    *passages: Passage,
    weights: EvidenceWeights | None = None,
    words: Mapping[str, float] | None = None,
) -> WeightedSentences:
    terms = weights_by_term(words or {"grease": 3.0, "bearings": 1.0})
    return weigh_sentences(
        terms, candidates(question, *passages), weights or EvidenceWeights(), Answerability(unrelated=0.0)
    )


def test_cosines_of_each_passage_are_its_own_columns() -> None:
    one, two = candidates("grease bearings", passage("grease it."), passage("the bearings."))
    np.testing.assert_array_equal(one.cosines, [[1, 0], [0, 0]])
    np.testing.assert_array_equal(two.cosines, [[0, 0], [0, 1]])
    assert compare(one_hot_words("grease", VOCABULARY), [], []) == ()


def test_headings_shift_the_tokens_of_a_passage_but_belong_to_no_sentence() -> None:
    (bare,) = candidates("grease", passage("Clean it. then grease it."))
    (headed,) = candidates("grease", passage("Clean it. then grease it.", ("grease", "bearings")))
    assert headed.cosines.shape[1] == bare.cosines.shape[1] + 2
    for span in ((0, 9), (10, 25)):
        np.testing.assert_array_equal(headed.cosines_of(*span), bare.cosines_of(*span))
    assert headed.cosines_of(0, 9).max() == 0.0
    assert headed.cosines_of(10, 25).max() == 1.0


def test_the_sentence_with_the_questions_words_has_the_most_evidence() -> None:
    text = "Clean the strainer. You grease the bearings every month. Call the office."
    ((first, second, third),) = weigh("how often grease bearings", passage(text)).sentences
    assert text[second.start : second.end] == "You grease the bearings every month."
    assert second.evidence > max(first.evidence, third.evidence)


@pytest.mark.parametrize(
    ("words", "text", "holding"),
    [
        ({"1.500,5": 1.0, "bar": 1.0}, "The seal is old. It opens at 1,500.5 bar. Call the office.", 1),
        ({"油圧": 1.0, "圧泵": 1.0}, "新的办公室在二楼。油圧泵需要每月润滑。", 1),
        ({"ปั๊": 1.0, "น้ำ": 1.0}, "ทาสีเขียว น้ำใน ปั๊ม", 0),
        ({"पंप": 1.0}, "कमरा हरा है। पंप को देखें।", 1),
    ],
)
def test_words_and_numbers_are_compared_as_the_search_compares_them(
    words: dict[str, float], text: str, holding: int
) -> None:
    (sentences,) = weigh("how", passage(text), words=words, weights=EvidenceWeights(max_sim=0.0)).sentences

    assert max(range(len(sentences)), key=lambda index: sentences[index].evidence) == holding


def test_a_word_of_the_previous_sentence_counts_half_and_an_earlier_one_nothing() -> None:
    words_alone = EvidenceWeights(overlap=1.0, max_sim=0.0)
    text = "Grease the pump. It hums. It runs. It stands."
    ((named, after, later, last),) = weigh("grease", passage(text), weights=words_alone).sentences
    assert named.evidence > after.evidence > later.evidence == last.evidence
    assert named.evidence - after.evidence == pytest.approx(after.evidence - later.evidence)
    off = EvidenceWeights(overlap=1.0, max_sim=0.0, carried=0.0)
    ((_, after, later, _),) = weigh("grease", passage(text), weights=off).sentences
    assert after.evidence == later.evidence


def test_the_previous_sentence_is_one_of_the_same_passage() -> None:
    words_alone = EvidenceWeights(overlap=1.0, max_sim=0.0)
    passages = passage("Grease it."), passage("It hums. It runs.")
    _, (first, second) = weigh("grease", *passages, weights=words_alone).sentences
    assert first.evidence == second.evidence


def test_evidence_grows_with_the_coverage_of_one_sentence() -> None:
    both, one, none = (
        weigh("grease bearings", passage(text)).evidence
        for text in ("Clean it. grease the bearings.", "Clean it. grease the valve.", "Clean it. Open the valve.")
    )
    assert 1.0 >= both > one > none >= 0.0


def test_evidence_is_standardized_over_all_passages_of_the_question() -> None:
    weighed = weigh(
        "grease bearings", passage("Clean it. Grease the bearings."), passage("Grease is here. Nothing. Bearings hum.")
    ).sentences
    evidence = np.array([sentence.evidence for sentences in weighed for sentence in sentences])
    assert [len(sentences) for sentences in weighed] == [2, 3]
    assert evidence.mean() == pytest.approx(0.0, abs=1e-9)
    overlap_only = weigh("grease bearings", passage("Clean it. Grease it."), weights=EvidenceWeights(1.0, 0.0))
    assert [sentence.evidence for sentence in overlap_only.sentences[0]] == [pytest.approx(-1.0), pytest.approx(1.0)]


def test_a_single_sentence_has_evidence_zero() -> None:
    ((only,),) = weigh("grease", passage("Grease it.")).sentences
    assert only.evidence == 0.0


def test_no_passages_have_no_sentences_and_no_evidence() -> None:
    assert weigh("grease") == WeightedSentences((), 0.0)


def test_a_sentence_has_the_words_of_the_term_that_it_defines() -> None:
    definition = "bearings\nThey turn. They wear.\n\nThey last."
    words = {"grease": 1.0, "bearings": 1.0}
    evidence = weigh("grease bearings", passage(definition), weights=EvidenceWeights(key=0.0), words=words).sentences[0]
    term, first, second, other = (sentence.evidence for sentence in evidence)
    assert first == pytest.approx(term)
    assert second == pytest.approx(term)
    assert other < term


def test_the_definition_of_what_is_asked_about_has_more_evidence_by_its_share_of_the_question() -> None:
    mentions, definition = (
        passage("Grease the bearings often."),
        passage("bearings\nThey turn.\nold bearings\nThey wear."),
    )
    words = {"grease": 1.0, "bearings": 3.0}

    def evidence(key: float) -> list[float]:
        found = weigh("grease bearings", mentions, definition, weights=EvidenceWeights(key=key), words=words)
        return [sentence.evidence for sentences in found.sentences for sentence in sentences]

    more = [with_key - without for with_key, without in zip(evidence(4.0), evidence(0.0), strict=True)]
    assert more == pytest.approx([0.0, 0.0, 4.0 * 0.75, 0.0, 0.0])


def test_a_row_with_a_cell_that_the_question_names_is_before_the_others() -> None:
    table = passage(
        "Part | Grease | Place\npump | month | cellar\nbearings | month | roof\nold bearings | month | roof"
    )
    (rows,) = weigh("how often grease bearings", table, words={"grease": 1.0, "bearings": 1.0}).sentences
    assert max(rows, key=lambda row: row.evidence) == rows[2]


def test_definitions_and_tables_do_not_tell_whether_there_is_an_answer() -> None:
    words = {"grease": 1.0, "bearings": 1.0}
    apart = weigh("grease bearings", passage("bearings\n\nGrease."), words=words)
    defined = weigh("grease bearings", passage("bearings\nGrease."), words=words)
    assert apart.evidence == defined.evidence
