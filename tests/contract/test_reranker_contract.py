"""What every ``Reranker`` promises the pipeline, over real text with real models."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path

import pytest

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Hit, Passage, RankedPassage, Reranked, RerankRequest, Retrieved
from edge_rag.core.placement import Precision
from edge_rag.errors import InferenceFailed
from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder, TokenVectors
from tests.support.accelerators.gpu import padded_pair_encoder
from tests.support.accelerators.npu import needs_npu, npu_pair_encoder

# One of them is a daemon's, which is given up where the machine is busy with something else.
pytestmark = pytest.mark.daemon

REPOSITORY = Path(__file__).parents[2]
CROSS_ENCODER = REPOSITORY / "tests" / "fixtures" / "tiny-cross-encoder"
TEXTS = (
    "The bearings of the pump must be greased every 2,000 operating hours. Use lithium grease. Wipe off the excess.",
    "Close the suction valve before you open the strainer.\nKeep the drain open.",
    "In case of fire use the carbon dioxide extinguisher beside the door. Leave by the east exit.",
    "The motor runs at 400 V. It draws 12 A under full load.",
    "Sodium hypochlorite is kept in the bunded store. Wear gloves and goggles when you handle it.",
    "The mechanical seal is checked for leaks each week, at the start of the first shift.",
)
QUESTIONS = (
    "How often must the pump bearings be greased?",
    "Which extinguisher is used when there is a fire?",
    "What current does the motor draw?",
    "Where is sodium hypochlorite kept?",
    "When is the mechanical seal checked?",
    "What is closed before the strainer is opened?",
    "How often must the pump bearings be greased?",
    "Where does one leave?",
)

Make = Callable[[], Reranker]


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder.open(REPOSITORY / "models" / "minilm-l6")


@pytest.fixture(
    params=[
        "max-sim",
        "cross-encoder",
        "cross-encoder in the form for GPUs",
        pytest.param("cross-encoder on the NPU", marks=needs_npu),
    ]
)
def reranker(request: pytest.FixtureRequest, encoder: TextEncoder, npu_graphs: Path) -> Reranker:
    if request.param == "cross-encoder on the NPU":
        return CrossEncoderReranker(npu_pair_encoder(npu_graphs), encoder)
    if request.param == "cross-encoder in the form for GPUs":
        return CrossEncoderReranker(padded_pair_encoder(Precision.FP16), encoder)
    if request.param == "max-sim":
        return MaxSimReranker(encoder)
    return CrossEncoderReranker(PairEncoder.open(CROSS_ENCODER), encoder)


def hits(texts: Sequence[str] = TEXTS) -> tuple[Hit, ...]:
    return tuple(
        Hit(
            Passage(ChunkId(number), DocumentId("d"), "manual.md", 1, 0, len(text), text, ("Site", "Manual")),
            score=1 / number,
        )
        for number, text in enumerate(texts, start=1)
    )


def ask(question: str, limit: int = 4, found: tuple[Hit, ...] | None = None) -> RerankRequest:
    words = {word.lower(): 1.0 + len(word) / 10 for word in question.rstrip("?").split() if len(word) > 3}
    return RerankRequest(question, Retrieved(hits() if found is None else found, words), limit)


def rank(reranker: Reranker, requests: Sequence[RerankRequest]) -> list[tuple[RankedPassage, ...]]:
    return [answer.passages for answer in reranker.rerank(requests)]


def test_passages_come_best_first_and_at_most_as_many_as_asked(reranker: Reranker) -> None:
    for limit in (1, 3, 6, 50):
        (ranked,) = rank(reranker, [ask(QUESTIONS[0], limit)])
        assert len(ranked) == min(limit, len(TEXTS))
        assert all(better.score >= worse.score for better, worse in pairwise(ranked))
        assert all(isfinite(each.score) for each in ranked)


def test_passages_are_handed_on_unchanged_and_none_twice(reranker: Reranker) -> None:
    (ranked,) = rank(reranker, [ask(QUESTIONS[0], 50)])
    assert sorted((each.passage for each in ranked), key=lambda passage: passage.chunk_id) == [
        hit.passage for hit in hits()
    ]


def test_a_pointwise_score_depends_on_question_and_text_alone(reranker: Reranker) -> None:
    def scores(question: str, texts: Sequence[str], limit: int = 50) -> dict[str, float]:
        request = RerankRequest(question, Retrieved(hits(texts)), limit, pointwise=True)
        with_others, answer = reranker.rerank([ask(QUESTIONS[1]), request])
        assert with_others == reranker.rerank([ask(QUESTIONS[1])])[0]
        assert reranker.rerank([request]) == [answer]
        values = [each.score for each in answer.passages]
        assert values == sorted(values, reverse=True)
        assert len(values) == min(limit, len(texts))
        assert all(0.0 <= value <= 1.0 for value in values)
        return {each.passage.text: each.score for each in answer.passages}

    found = scores(QUESTIONS[0], TEXTS)
    assert scores(QUESTIONS[0], TEXTS[::-1]) == found
    assert scores(QUESTIONS[0], TEXTS[2:4]) == {text: found[text] for text in TEXTS[2:4]}
    assert scores(QUESTIONS[0], TEXTS, 2) == dict(list(found.items())[:2])


def test_sentences_hold_all_of_a_passage_but_white_space(reranker: Reranker) -> None:
    (ranked,) = rank(reranker, [ask(QUESTIONS[0], 50)])
    for each in ranked:
        text = each.passage.text
        spans = [(sentence.start, sentence.end) for sentence in each.sentences]
        assert spans == sorted(spans)
        assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
        assert all(isfinite(sentence.evidence) for sentence in each.sentences)


def test_evidence_is_comparable_between_the_passages_of_a_question(reranker: Reranker) -> None:
    (ranked,) = rank(reranker, [ask(QUESTIONS[0])])
    evidence = [sentence.evidence for each in ranked for sentence in each.sentences]
    assert sum(evidence) == pytest.approx(0.0, abs=1e-6)
    assert max(evidence) > 0 > min(evidence)


def test_more_speaks_for_an_answer_where_there_is_one(reranker: Reranker) -> None:
    here, elsewhere = reranker.rerank([ask(QUESTIONS[0], 50), ask("Which planet has the most moons?", 50)])
    assert 1.0 >= here.evidence > elsewhere.evidence >= 0.0


def test_a_plain_questions_answer_is_in_the_sentence_with_the_most_evidence(reranker: Reranker) -> None:
    answers = ("2,000 operating hours", "carbon dioxide", "12 A", "bunded store", "each week", "suction valve")
    for question, answer in zip(QUESTIONS, answers, strict=False):
        (ranked,) = rank(reranker, [ask(question, 50)])
        _, best = max(
            (sentence.evidence, each.passage.text[sentence.start : sentence.end])
            for each in ranked
            for sentence in each.sentences
        )
        assert answer in best


def test_eight_questions_at_once_get_exactly_what_each_gets_alone(reranker: Reranker) -> None:
    requests = [ask(question, limit=2 + number % 3) for number, question in enumerate(QUESTIONS)]
    assert reranker.rerank(requests) == [reranker.rerank([request])[0] for request in requests]


def test_nothing_found_is_nothing_ranked(reranker: Reranker) -> None:
    assert reranker.rerank([]) == []
    nothing, something = reranker.rerank([ask(QUESTIONS[0], found=()), ask(QUESTIONS[1])])
    assert nothing == Reranked((), 0.0)
    assert len(something.passages) == 4


def test_a_single_passage_is_returned_with_its_sentences(reranker: Reranker) -> None:
    ((only,),) = rank(reranker, [ask(QUESTIONS[0], found=hits(TEXTS[:1]))])
    assert len(only.sentences) == 3


def test_passages_of_equal_text_are_kept_apart_in_the_order_they_came(reranker: Reranker) -> None:
    (ranked,) = rank(reranker, [ask(QUESTIONS[0], found=hits((TEXTS[0], TEXTS[0], TEXTS[0])))])
    assert [each.passage.chunk_id for each in ranked] == [1, 2, 3]


def test_odd_text_is_ranked_like_any_other(reranker: Reranker) -> None:
    odd = (" ", "😀", "[SEP] [CLS]", "東京のポンプ。", "x" * 3000, "word " * 900)
    (ranked,) = rank(reranker, [ask("?", 50, found=hits(odd))])
    assert {each.passage.text for each in ranked} == set(odd)
    assert all(isfinite(each.score) for each in ranked)


class BrokenVectorizer:
    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        raise InferenceFailed("the encoder failed")

    passage_tokens = token_vectors


def test_a_failing_model_fails_the_batch_with_its_own_error() -> None:
    pairs = PairEncoder.open(CROSS_ENCODER)
    for reranker in (MaxSimReranker(BrokenVectorizer()), CrossEncoderReranker(pairs, BrokenVectorizer())):
        with pytest.raises(InferenceFailed, match="the encoder failed"):
            reranker.rerank([ask(QUESTIONS[0])])


def test_max_sim_puts_the_passage_that_answers_first(encoder: TextEncoder) -> None:
    requests = [ask(each) for each in QUESTIONS[:6]]
    best = [ranked[0].passage.text for ranked in rank(MaxSimReranker(encoder), requests)]
    assert best == [TEXTS[0], TEXTS[2], TEXTS[3], TEXTS[4], TEXTS[5], TEXTS[1]]


def test_a_cross_encoder_alone_decides_the_order(encoder: TextEncoder) -> None:
    scorer = PairEncoder.open(CROSS_ENCODER)
    (ranked,) = rank(CrossEncoderReranker(scorer, encoder), [ask(QUESTIONS[0], 50)])
    pairs = [(QUESTIONS[0], "\n".join((*each.passage.context, each.passage.text))) for each in ranked]
    assert [each.score for each in ranked] == pytest.approx([float(score) for score in scorer.score(pairs)])
