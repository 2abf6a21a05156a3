"""An embedder that borrows other machines': implements the retriever's ``Embedding`` over this box's and remotes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import NO_CONTEXT, Question
from edge_rag.offload.encoding.batch import BatchItem, Sharing
from edge_rag.offload.encoding.bulk_embedding import BulkEmbedding, HereToo
from edge_rag.offload.encoding.client import EncoderCall, EncodeRequest, EncoderOffload, EncoderResult, EncodingRemote
from edge_rag.offload.encoding.messages import checked_vectors, fits, release_texts
from edge_rag.offload.encoding.routing import Work
from edge_rag.offload.generation.routing import Place

Vectors = NDArray[np.float32]


class OffloadingEmbedding:
    """Embeds here or elsewhere.

    Args:
        loan: Decides, and knows the machines.
        questions_here: Embeds questions here, float32 [questions, dimension].
        at_once: Passages that are embedded at once here.
    """

    def __init__(self, loan: EncoderOffload, questions_here: Callable[[Sequence[str]], Vectors], at_once: int) -> None:
        self._loan = loan
        self._questions_here = questions_here
        self._at_once = at_once
        self._sharing: Sharing[Question, Vectors] = Sharing(loan, Work.QUESTIONS, self._here, self._errand)

    def questions(self, questions: Sequence[Question]) -> Vectors:
        """Embeds questions; see ``retriever.ports.Embedding``."""
        vectors = self._sharing.compute(questions)
        return np.stack(vectors) if vectors else np.empty((0, self._loan.courier.models.dimension), dtype=np.float32)

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        here: Callable[[Sequence[str]], Vectors],
        yield_to_queries: Callable[[float], None],
        told: Callable[[int], None],
    ) -> Vectors:
        """Embeds the passages of a document; see ``retriever.ports.Embedding``."""
        choice = self._loan.place(EncodeRequest(Work.PASSAGES, NO_CONTEXT, rule(), len(texts), b"", bool(texts)))
        if choice.place is not Place.LOCAL:
            return BulkEmbedding(
                self._loan, choice, texts, rule, HereToo(here, yield_to_queries, self._at_once), told
            ).run()
        parts: list[Vectors] = []
        for first in range(0, len(texts), self._at_once):
            told(first)
            part, began = texts[first : first + self._at_once], self._loan.clock()
            parts.append(here(part))
            took = self._loan.clock() - began
            self._loan.measure(Work.PASSAGES, len(part), took)
            yield_to_queries(took)
        return np.concatenate(parts) if parts else here(texts)

    def close(self) -> None:
        """Lets what is done here finish."""
        self._sharing.close()

    def _here(self, questions: Sequence[Question]) -> Sequence[Vectors]:
        return list(self._questions_here([question.text for question in questions]))

    def _errand(self, question: Question) -> BatchItem[Vectors]:
        text, context = question.text, question.context
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        wanted = EncodeRequest(Work.QUESTIONS, context, question.rule, 1, key, fits((text,)))
        return BatchItem(wanted, EncoderCall(Work.QUESTIONS, context, 1, partial(self._seal, question), self._ask))

    def _seal(self, question: Question, remote: EncodingRemote) -> bytes:
        embedder, request_id = self._loan.courier.models.embedder, question.context.request_id
        return remote.seal_texts(release_texts(question.rule, embedder, [question.text], True, request_id))

    async def _ask(self, remote: EncodingRemote, sealed: bytes, within_s: float) -> EncoderResult[Vectors]:
        reply = await remote.embed(sealed, within_s)
        vectors = checked_vectors(reply.data, 1, self._loan.courier.models.dimension)
        return EncoderResult(vectors[0], reply.queue_s, reply.compute_s)
