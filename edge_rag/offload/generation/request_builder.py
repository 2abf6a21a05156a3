"""Builds the request that is sent to a remote, as the collection's offload rule allows. There is no other way out."""

from __future__ import annotations

import hashlib
from typing import Final

from edge_rag.core.generation import GeneratedChunk, GenerationRequest, TextChunk
from edge_rag.core.ids import RequestId
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import Sampling
from edge_rag.errors import PermissionDenied
from edge_rag.generator.prompt.template import Prompt
from edge_rag.offload.generation.redaction import Redactor, Restorer
from edge_rag.offload.ports import OutboundRequest, SentPassage

_MAX_REQUEST_ID: Final = 128


class ReplyRestorer:
    """Puts redacted values back into the reply to one request.

    Args:
        restorer: Restores redacted values; None if nothing was redacted.
    """

    def __init__(self, restorer: Restorer | None) -> None:
        self._restorer = restorer

    def restore(self, chunk: GeneratedChunk) -> GeneratedChunk | None:
        """Returns the local chunk, or None if its text may be the beginning of a placeholder."""
        if self._restorer is None or not isinstance(chunk, TextChunk):
            return chunk
        text = self._restorer.feed(chunk.text)
        return TextChunk(text) if text else None

    def flush(self) -> GeneratedChunk | None:
        text = "" if self._restorer is None else self._restorer.flush()
        return TextChunk(text) if text else None


def build(
    request: GenerationRequest,
    prompt: Prompt,
    vocabulary: str,
    salt: bytes,
    redactor: Redactor,
) -> tuple[OutboundRequest, ReplyRestorer]:
    """Builds an outbound request as the collection's rule allows, and what restores its reply.

    Args:
        redactor: Applied if the rule is REDACTED.

    Raises:
        PermissionDenied: The rule forbids sending it.
    """
    sharing = hashlib.sha256(salt + f"{request.trust_domain} {request.epoch}".encode()).hexdigest()[:32]
    restorer: Restorer | None = None
    question, user, stop, request_id = request.question, prompt.user, request.sampling.stop, request.request_id
    texts = tuple(prompt.passages[index].passage.text for index in prompt.numbering)
    if request.offload is OffloadRule.REDACTED and redactor:
        redaction = redactor.begin((user, question, request_id, *stop, *texts))
        question, user = redaction.redact(question), redaction.redact(user)
        stop = tuple(redaction.redact(text) for text in stop)
        request_id = RequestId(redaction.redact(request_id)[:_MAX_REQUEST_ID])
        texts = tuple(redaction.redact(text) for text in texts)
        restorer, vocabulary = redaction.restorer(), ""
    elif request.offload is not OffloadRule.ALLOWED:
        raise PermissionDenied("the collection does not allow offload")
    sampling = Sampling(
        max_tokens=request.sampling.max_tokens,
        temperature=request.sampling.temperature,
        top_k=request.sampling.top_k,
        top_p=request.sampling.top_p,
        repetition_penalty=request.sampling.repetition_penalty,
        seed=request.sampling.seed,
        stop=stop,
    )
    outbound = OutboundRequest(
        request_id=request_id,
        question=question,
        passages=tuple(map(SentPassage, texts)),
        system=prompt.system,
        user=user,
        sampling=sampling,
        priority=request.priority,
        format=request.format,
        vocabulary=vocabulary,
        sharing=sharing,
    )
    return outbound, ReplyRestorer(restorer)
