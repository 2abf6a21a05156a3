"""Generation requests of peers, and the events of their answers."""

from __future__ import annotations

import math
import re
from typing import Final

from edge_rag.api.v1 import generation_pb2, rag_pb2
from edge_rag.core.answer import Finished, StageTime
from edge_rag.core.generation import (
    Generated,
    GeneratedChunk,
    GenerationRequest,
    GeneratorLoad,
    QuoteChunk,
    TextChunk,
    TokenChunk,
)
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import MAX_PASSAGES, bounded_int, parse_text
from edge_rag.core.limits.request_fields import MAX_SENTENCES as MAX_QUOTED
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.query import AnswerMode
from edge_rag.errors import InvalidRequest
from edge_rag.wire.answers import finished_to_message
from edge_rag.wire.codec import Codec
from edge_rag.wire.requests import parse_format, parse_priority, parse_sampling

MAX_PASSAGE_CHARACTERS: Final = 65_536
MAX_SENTENCES: Final = 4096

_LOAD: Final = Codec(GeneratorLoad, generation_pb2.Load)
_SHARING: Final = re.compile(r"[0-9a-f]{0,64}")
_MODES: Final = {
    rag_pb2.ANSWER_MODE_UNSPECIFIED: AnswerMode.QUOTE,
    rag_pb2.ANSWER_MODE_QUOTE: AnswerMode.QUOTE,
    rag_pb2.ANSWER_MODE_FREE: AnswerMode.FREE,
}


def parse_generate_request(request: generation_pb2.GenerateRequest, peer: Asker) -> GenerationRequest:
    """Returns the generation request of a peer.

    Args:
        peer: The caller; its requests share no cached KV with other callers or collections.
    """
    if request.mode not in _MODES:
        raise InvalidRequest("mode", "must be ANSWER_MODE_QUOTE or ANSWER_MODE_FREE; the caller checks the answer")
    if not _SHARING.fullmatch(request.sharing):
        raise InvalidRequest("sharing", "must be up to 64 characters of 0-9 and a-f")
    bounded_int("passages", len(request.passages), 1, MAX_PASSAGES)
    mode, sampling = _MODES[request.mode], parse_sampling(request.sampling)
    if mode is AnswerMode.QUOTE and not any(passage.sentences for passage in request.passages):
        raise InvalidRequest("passages", "must have sentences to be quoted")
    return GenerationRequest(
        request_id=peer.request_id,
        question=parse_text("question", request.question, peer.limits.question_characters),
        passages=tuple(_passage(n, passage) for n, passage in enumerate(request.passages)),
        evidence=1.0,
        mode=mode,
        max_sentences=bounded_int(
            "max_sentences", request.max_sentences if request.HasField("max_sentences") else 1, 1, MAX_QUOTED
        ),
        sampling=sampling,
        priority=peer.identity.capped_priority(parse_priority(request.priority)),
        client=peer.identity.name,
        trust_domain=f"peer/{peer.identity.name}/{request.sharing}",
        deadline=peer.deadline,
        format=parse_format(request, mode, sampling),
    )


def load_to_message(load: GeneratorLoad) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(load=_LOAD.to_message(load))


def chunk_to_message(event: GeneratedChunk | Generated) -> generation_pb2.GenerateResponse:
    """Returns one message of an answer."""
    match event:
        case TextChunk():
            return generation_pb2.GenerateResponse(text=event.text)
        case TokenChunk():
            return generation_pb2.GenerateResponse(tokens=generation_pb2.TokenChunk(ids=event.tokens))
        case QuoteChunk():
            quoted = generation_pb2.QuotedSentence(passage=event.passage, sentence=event.sentence)
            return generation_pb2.GenerateResponse(quoted=quoted)
        case Generated():
            return generation_pb2.GenerateResponse(finished=_finished(event))


def _finished(event: Generated) -> rag_pb2.Finished:
    stage = StageTime("generator", event.queue_s, event.compute_s)
    return finished_to_message(Finished(event.reason, event.usage, (stage,), event.first_token_s))


def _passage(number: int, message: generation_pb2.SourcePassage) -> RankedPassage:
    field = f"passages[{number}]"
    if not 1 <= len(message.text) <= MAX_PASSAGE_CHARACTERS:
        raise InvalidRequest(
            f"{field}.text", f"must be 1 to {MAX_PASSAGE_CHARACTERS:,} characters, has {len(message.text):,}"
        )
    if len(message.sentences) > MAX_SENTENCES:
        raise InvalidRequest(f"{field}.sentences", f"at most {MAX_SENTENCES:,}, has {len(message.sentences):,}")
    at, sentences = 0, []
    for sentence in message.sentences:
        if not at <= sentence.start < sentence.end <= len(message.text) or not math.isfinite(sentence.evidence):
            raise InvalidRequest(f"{field}.sentences", "must be in order and in the text, with a finite evidence")
        sentences.append(Sentence(sentence.start, sentence.end, sentence.evidence))
        at = sentence.end
    name = str(number)
    passage = Passage(ChunkId(number), DocumentId(name), name, None, 0, len(message.text), message.text)
    return RankedPassage(passage, 0.0, tuple(sentences))
