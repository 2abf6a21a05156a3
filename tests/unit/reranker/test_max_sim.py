"""What decides the order of passages besides their max-sim."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Hit, OtherWording, Passage, Reranked, RerankRequest, Retrieved
from edge_rag.reranker.candidate import EncodedPassage, RerankCandidate, compare
from edge_rag.reranker.centring import TokenCentres, centred
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.reranker.scoring import TokenVectorizer
from edge_rag.runtime.encoder.text_encoder import TokenVectors

QUESTION = "question"
SIMILARITIES = {QUESTION: 1.0, "near": 0.90, "pump near": 0.905, "far": 0.2, "away": 0.1}


class GivenSimilarities:
    """One vector a text, at the similarity to the question that its table names."""

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        cosines = [SIMILARITIES.get(text, 0.0) for text in texts]
        return [
            TokenVectors(
                np.array([[cosine, (1.0 - cosine**2) ** 0.5]], np.float32),
                np.array([[0, len(text)]], np.int32),
            )
            for text, cosine in zip(texts, cosines, strict=True)
        ]

    passage_tokens = token_vectors


def scores(
    texts: Sequence[str], term_weights: Mapping[str, float], others: tuple[OtherWording, ...] = ()
) -> dict[str, float]:
    hits = tuple(
        Hit(Passage(ChunkId(number), DocumentId("d"), "d.txt", None, 0, len(text), text), 1.0)
        for number, text in enumerate(texts, start=1)
    )
    retrieved = Retrieved(hits, term_weights, others=others)
    (answer,) = MaxSimReranker(GivenSimilarities()).rerank([RerankRequest(QUESTION, retrieved, 10)])
    return {ranked.passage.text: ranked.score for ranked in answer.passages}


def compared(vectorizer: TokenVectorizer, texts: Sequence[str]) -> tuple[RerankCandidate, ...]:
    passages = [Passage(ChunkId(1), DocumentId("d"), "d.txt", None, 0, len(text), text) for text in texts]
    encoded = [
        EncodedPassage.of(each, vectors)
        for each, vectors in zip(passages, vectorizer.token_vectors(texts), strict=True)
    ]
    return compare(vectorizer.token_vectors([QUESTION])[0], passages, encoded)


def test_the_retrievers_order_decides_where_passages_compare_alike() -> None:
    assert next(iter(scores(["near", "far", "away", "pump near"], {}))) == "near"
    assert next(iter(scores(["pump near", "far", "away", "near"], {}))) == "pump near"


def test_max_sim_decides_where_passages_compare_differently() -> None:
    assert next(iter(scores(["far", "away", "near"], {}))) == "near"


@pytest.mark.parametrize(("weight", "first"), [(2.9, "near"), (3.0, "pump near")])
def test_words_count_where_a_passage_holds_three_tenths_of_the_questions_term_weight(weight: float, first: str) -> None:
    texts, term_weights = ["near", "far", "away", "pump near"], {"pump": weight, "impeller": 10.0 - weight}
    counted = scores(texts, term_weights)
    assert next(iter(counted)) == first
    assert (list(counted) == list(scores(texts, {}))) is (first == "near")


def test_another_wording_counts_less_than_the_main_one() -> None:
    texts, other = ["near", "far", "away", "pump"], OtherWording("other", {"pump": 1.0})
    alone, both = scores(texts, {}), scores(texts, {}, (other,))

    assert next(iter(alone)) == next(iter(both)) == "near"
    assert both["pump"] > alone["pump"]
    assert list(scores(texts, {}, (OtherWording(QUESTION),))) == list(alone)


def test_the_best_passage_by_the_question_as_asked_is_among_the_first_three() -> None:
    texts = ["near", "pump near", "far", "away", "valve"]
    asked = OtherWording("other", {"valve": 1.0})
    before, after = scores(texts, {}, (asked,)), scores(texts, {}, (replace(asked, as_asked=True),))

    assert list(before).index("valve") > 2
    assert list(after) == ["near", "pump near", "valve", "far", "away"]
    assert after["valve"] == before["far"]


def test_a_question_is_ranked_alike_in_steps_and_at_once_in_all_its_wordings() -> None:
    hits = tuple(
        Hit(Passage(ChunkId(number), DocumentId("d"), "d.txt", None, 0, len(text), text), 1.0)
        for number, text in enumerate(["pump", "far", "away", "near"], start=1)
    )
    request = RerankRequest(QUESTION, Retrieved(hits, others=(OtherWording("other", {"pump": 1.0}),)), 10)
    answers: list[Reranked] = []

    def steps() -> Iterator[None]:
        answers.append((yield from MaxSimReranker(GivenSimilarities()).rerank_in_steps(request, 4)))

    assert len(list(steps())) > 1
    assert answers == MaxSimReranker(GivenSimilarities()).rerank([request])


def test_scores_fall_in_the_order_of_the_passages() -> None:
    values = list(scores(["far", "pump near", "near", "away"], {"pump": 1.0}).values())
    assert values == sorted(values, reverse=True)


def test_without_known_words_vectors_are_compared_without_what_all_texts_share() -> None:
    class SharedDirection:
        """All texts lie along one direction; what tells them apart is small beside it."""

        def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
            own = {QUESTION: (0.3, 0.0), "alike": (0.3, 0.0), "longer": (0.0, 0.02)}
            rows = [np.array([(1.0, *own.get(text, (0.0, 0.0)))], np.float32) for text in texts]
            spans = np.array([[0, 1]], np.int32)
            return [TokenVectors(row / np.linalg.norm(row), spans) for row in rows]

    vectorizer = SharedDirection()
    candidates = compared(vectorizer, ["alike", "longer"])
    (question,) = vectorizer.token_vectors([QUESTION])
    alike, longer = TokenCentres(vectorizer).compare(QUESTION, question, candidates)
    assert alike.cosines.item() == pytest.approx(1.0, abs=1e-4)
    assert candidates[1].cosines.item() > 0.9
    assert longer.cosines.item() < 0.5


@pytest.mark.parametrize("rows", [0, 3])
def test_a_token_at_the_centre_has_no_direction(rows: int) -> None:
    assert not centred(np.ones((rows, 2), np.float32), np.ones(2, np.float32)).any()


def test_a_passage_that_defines_what_is_asked_about_is_before_one_that_mentions_it() -> None:
    term_weights = {"impeller": 6.0, "pump": 4.0}
    mentions, defines = "The impeller is near.", "impeller\nThe wheel is near."
    alike = scores([mentions, defines.replace("\n", "\n\n")], term_weights)
    defined = scores([mentions, defines], term_weights)
    assert alike[mentions] > alike[defines.replace("\n", "\n\n")]
    assert defined[defines] > defined[mentions]
