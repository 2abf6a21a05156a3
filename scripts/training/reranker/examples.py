"""What a step learns from: a question, the passage that answers it, and passages that only look as if they did."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Hit, Passage, RerankRequest, Retrieved
from edge_rag.reranker.max_sim import MaxSimReranker
from scripts.training.reranker.corpus import TrainingText
from scripts.training.reranker.negatives import LexicalPool
from scripts.training.reranker.questions import QuestionKind, QuestionMaker, SyntheticQuestion

_SEARCHED: Final = 24
_HARDEST: Final = 8
_COMMON: Final = 3
_DOCUMENTATION_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Example:
    """A list to put in order.

    Attributes:
        kind: How the question was made.
        question: The question.
        passages: The right one first.
        max_sim: The default reranker's score of each passage, standardized over them.
    """

    kind: QuestionKind
    question: str
    passages: tuple[str, ...]
    max_sim: tuple[float, ...]


class ExampleMaker:
    """Makes examples; the nth is the same in every run with the same texts and seed.

    Args:
        texts: What questions are made of and negatives are taken from.
        pool: The same texts, for search.
        questions: Makes the questions.
        reranker: The default reranker, which a trained one is compared with and added to.
        negatives: Wrong passages a question, at least 1.
        seed: Chooses everything.
    """

    def __init__(
        self,
        texts: Sequence[TrainingText],
        pool: LexicalPool,
        questions: QuestionMaker,
        reranker: MaxSimReranker,
        negatives: int,
        seed: int,
    ) -> None:
        self._texts = texts
        self._pool = pool
        self._questions = questions
        self._reranker = reranker
        self._negatives = negatives
        self._seed = seed
        self._documented = [place for place, text in enumerate(texts) if not text.synopsis]

    def example(self, number: int) -> Example:
        """Returns the example of a number, 0 or more."""
        chance = random.Random(f"{self._seed} {number}")
        while True:
            documentation = bool(self._documented) and chance.random() < _DOCUMENTATION_SHARE
            place = chance.choice(self._documented) if documentation else chance.randrange(len(self._texts))
            question = self._questions.make(self._texts[place], chance)
            if question is None:
                continue
            wrong = self._wrong(question, place, chance)
            if wrong is not None:
                passages = (question.passage, *wrong)
                return Example(question.kind, question.text, passages, self._scores(question.text, passages))

    def _wrong(self, question: SyntheticQuestion, place: int, chance: random.Random) -> list[str] | None:
        """Mostly what BM25 puts first, and some of what it puts later; None if there is too little of it.

        Nor is there anything wrong to find for a sentence that many texts have: it asks for none of them.
        """
        rows = [row for row in self._pool.search(question.text, _SEARCHED) if row != place]
        if sum(question.source in self._texts[row].text for row in rows) >= _COMMON:
            return None
        found = [row for row in rows if self._is_wrong(question, place, row)]
        hardest = chance.sample(found[:_HARDEST], min(len(found[:_HARDEST]), (2 * self._negatives + 2) // 3))
        others = [row for row in found if row not in hardest]
        rest = chance.sample(others, min(len(others), self._negatives - len(hardest)))
        wrong = [self._texts[row].text for row in (*hardest, *rest)]
        return wrong if len(wrong) == self._negatives else None

    def _is_wrong(self, question: SyntheticQuestion, place: int, row: int) -> bool:
        # Only a synopsis tells packages of one source apart; a sentence of one may well be true of the other.
        if question.kind is QuestionKind.SYNOPSIS:
            return self._texts[row].synopsis != question.source
        return self._texts[row].origin != self._texts[place].origin and question.source not in self._texts[row].text

    def _scores(self, question: str, passages: Sequence[str]) -> tuple[float, ...]:
        hits = [
            Hit(Passage(ChunkId(place), DocumentId(str(place)), "", None, 0, len(text), text), 0.0)
            for place, text in enumerate(passages)
        ]
        retrieved = Retrieved(tuple(hits), self._pool.term_weights(question))
        (ranked,) = self._reranker.rerank([RerankRequest(question, retrieved, len(hits))])
        scores = {each.passage.chunk_id: each.score for each in ranked.passages}
        return tuple(scores[hit.passage.chunk_id] for hit in hits)
