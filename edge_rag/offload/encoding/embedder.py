"""Implements the retriever's ``Embedding`` over the local embedder and remotes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import NO_CONTEXT, Question
from edge_rag.offload.encoding.batch import BatchEncoder, BatchItem
from edge_rag.offload.encoding.bulk_embedding import BulkEmbedding, LocalEmbedder
from edge_rag.offload.encoding.client import EncoderCall, EncodeRequest, EncoderOffload, EncoderResult, EncodingRemote
from edge_rag.offload.encoding.messages import build_texts, checked_vectors, fits
from edge_rag.offload.encoding.routing import EncoderWork
from edge_rag.offload.generation.routing import Place

Vectors = NDArray[np.float32]


class OffloadingEmbedding:
    """Embeds locally or on remotes.

    Args:
        offload: Decides, and calls remotes.
        embed_questions: Embeds questions locally: float32 [questions, dimension].
        batch_size: Most passages that the local embedder gets at once.
    """

    def __init__(
        self, offload: EncoderOffload, embed_questions: Callable[[Sequence[str]], Vectors], batch_size: int
    ) -> None:
        self._offload = offload
        self._embed_questions = embed_questions
        self._batch_size = batch_size
        self._batches: BatchEncoder[Question, Vectors] = BatchEncoder(
            offload, EncoderWork.QUESTIONS, self._local, self._item
        )

    def questions(self, questions: Sequence[Question]) -> Vectors:
        """Embeds questions; see ``core.ports.Embedding``."""
        vectors = self._batches.encode(questions)
        return np.stack(vectors) if vectors else np.empty((0, self._offload.caller.models.dimension), dtype=np.float32)

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        local: Callable[[Sequence[str]], Vectors],
        yield_to_queries: Callable[[float], None],
        on_progress: Callable[[int], None],
    ) -> Vectors:
        """Embeds the passages of a document; see ``core.ports.Embedding``."""
        decision = self._offload.place(
            EncodeRequest(EncoderWork.PASSAGES, NO_CONTEXT, rule(), len(texts), b"", bool(texts))
        )
        if decision.place is not Place.LOCAL:
            embedder = LocalEmbedder(local, yield_to_queries, self._batch_size)
            return BulkEmbedding(self._offload, decision, texts, rule, embedder, on_progress).run()
        parts: list[Vectors] = []
        for first in range(0, len(texts), self._batch_size):
            on_progress(first)
            part, started = texts[first : first + self._batch_size], self._offload.clock()
            parts.append(local(part))
            elapsed = self._offload.clock() - started
            self._offload.measure_local(EncoderWork.PASSAGES, len(part), elapsed)
            yield_to_queries(elapsed)
        return np.concatenate(parts) if parts else local(texts)

    def close(self) -> None:
        """Waits for local work in progress."""
        self._batches.close()

    def _local(self, questions: Sequence[Question]) -> Sequence[Vectors]:
        return list(self._embed_questions([question.text for question in questions]))

    def _item(self, question: Question) -> BatchItem[Vectors]:
        text, context = question.text, question.context
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        request = EncodeRequest(EncoderWork.QUESTIONS, context, question.rule, 1, key, fits((text,)))
        serialize = partial(self._serialize, question)
        return BatchItem(request, EncoderCall(EncoderWork.QUESTIONS, context, 1, serialize, self._execute))

    def _serialize(self, question: Question, remote: EncodingRemote) -> bytes:
        embedder, request_id = self._offload.caller.models.embedder, question.context.request_id
        return remote.serialize_texts(build_texts(question.rule, embedder, [question.text], True, request_id))

    async def _execute(self, remote: EncodingRemote, body: bytes, timeout_s: float) -> EncoderResult[Vectors]:
        reply = await remote.embed(body, timeout_s)
        vectors = checked_vectors(reply.data, 1, self._offload.caller.models.dimension)
        return EncoderResult(vectors[0], reply.queue_s, reply.compute_s)
