"""Generates answers to questions with passages: prompt, constraint and event stream around the engine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from edge_rag.core.answer import FinishReason, UnsupportedText
from edge_rag.core.generation import GenerationRequest
from edge_rag.core.monitoring.status import EngineStats
from edge_rag.core.query import AnswerMode
from edge_rag.engine.constraint import Constraint, FreeText, NoGeneration
from edge_rag.engine.engine import Engine
from edge_rag.engine.ports import Stemmer, TokenSink
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.sequence import SequenceId
from edge_rag.errors import EdgeRagError
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.citations.markers import CitationMapper
from edge_rag.generator.citations.trace import TraceReader
from edge_rag.generator.constraints.grammar import GrammarCompiler
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.prompt.template import Prompt, PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.generator.quoting import Quote, choose_quotes
from edge_rag.generator.streams import (
    CheckedText,
    ChunkListener,
    CiteStream,
    FormattedStream,
    FreeStream,
    Listener,
    NotFoundStream,
    QuoteChunkStream,
    QuoteStream,
    TextChunkStream,
    TokenChunkStream,
)
from edge_rag.generator.trace_streams import TraceChunkStream, TraceStream, TraceTokens


@dataclass(frozen=True, slots=True)
class QuoteSettings:
    """How quoted sentences are chosen.

    Measured on XQuAD questions over 120 paragraphs, as the share of answers that contain a gold answer: 82% with one
    sentence, 92% with up to two (1.85 on average; 90% with half the margin, 1.45). An evidence threshold of 0.25
    answers 98% of these questions and rejects 94% of the same questions over the paragraphs of all other articles.

    Attributes:
        margin: How far below the best quoted sentence the evidence of a second one may be; half of it for a third, and
            so on.
        not_found_below: Evidence below which the answer is the not-found answer, 0 to 1.
    """

    margin: float = 4.0
    not_found_below: float = 0.25


@dataclass(frozen=True, slots=True)
class CiteSettings:
    """How the text of CITE mode is checked.

    Attributes:
        make_stemmer: Makes a stemmer, one for each request.
        unsupported: Whether unsupported sentences are marked or dropped.
    """

    make_stemmer: Callable[[], Stemmer]
    unsupported: UnsupportedText = UnsupportedText.MARK


@dataclass(frozen=True, slots=True)
class AnswerHandle:
    """A request that was admitted."""

    _engine: Engine
    _sequence: SequenceId

    def cancel(self, error: EdgeRagError | None = None) -> None:
        """Ends the request at the next step boundary; see ``pipeline.ports.GenerationHandle``."""
        self._engine.cancel(self._sequence, error)

    def pause(self) -> None:
        """Suspends generation until ``resume``."""
        self._engine.pause(self._sequence)

    def resume(self) -> None:
        """Continues generation."""
        self._engine.resume(self._sequence)


class AnswerGenerator:
    """Generates answers with an engine. All methods may be called from any thread.

    Args:
        engine: Runs the model. The owner of the generator starts and closes it.
        end_tokens: The model's end-of-turn tokens.
        tokenizer: The model's tokenizer.
        grammars: Compiles answer formats.
        prompt: Texts of the prompt.
        quote: How quoted sentences are chosen.
        cite: How the text of CITE mode is checked.
        prompts: Renders prompts.
        clock: The engine's clock.
    """

    def __init__(
        self,
        engine: Engine,
        end_tokens: frozenset[int],
        tokenizer: ChatTokenizer,
        grammars: GrammarCompiler,
        prompt: PromptSettings,
        quote: QuoteSettings,
        cite: CiteSettings,
        prompts: PromptEncoder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self._end_tokens = end_tokens
        self._tokenizer = tokenizer
        self._grammars = grammars
        self._prompt = prompt
        self._quote = quote
        self._cite = cite
        self._prompts = prompts
        self._clock = clock
        self.vocabulary = hashlib.sha256(tokenizer.definition.encode()).hexdigest()

    def stats(self) -> EngineStats:
        """Returns the state of the engine; see ``offload.ports.LocalGenerator``."""
        return self.engine.stats()

    def prefetch(self, request: GenerationRequest) -> None:
        """Prefills a probable request; the prompt is rendered on the caller's thread.

        If the passages or their order turn out different, the common prefix is still of use.
        """
        if not self.engine.prefetch_enabled or request.mode is AnswerMode.QUOTE:
            return
        with suppress(EdgeRagError):  # the request itself will report what is wrong
            prompt = self._prompts.encode(request, self.engine.capacity)
            self.engine.prefetch(_tokens(request, prompt.tokens, FreeText(self._end_tokens)))

    def submit(self, request: GenerationRequest, listener: Listener) -> AnswerHandle:
        """Admits a request; see ``pipeline.ports.Generator``. The prompt is rendered on the caller's thread.

        Raises:
            InvalidRequest, Overloaded, RequestTooLarge, DeadlineExceeded, NotReady: It was not admitted.
        """
        try:
            tokens, sink = self._prepare(request, listener)
        except EdgeRagError as error:
            self.engine.record_refusal(_nothing_to_generate(request, FinishReason.NOT_FOUND), error)
            raise
        return AnswerHandle(self.engine, self.engine.submit(tokens, sink))

    def open_continuation(self, request: GenerationRequest, listener: Listener) -> Continuation | None:
        """Prepares an answer that another machine generates; None if no model is needed: a quoted answer, and the
        not-found answer.

        Raises:
            InvalidRequest, RequestTooLarge: It could not be answered here either.
        """
        if request.mode is AnswerMode.QUOTE or not self._may_hold_an_answer(request):
            return None
        grammar = None if request.format is None else self._grammars.compile(request.format, request.client)
        # Another machine writes text, so the rest is asked for as text, too.
        prompt, constraint, sink = self._compose(request, grammar, listener, as_chat=True)

        def submit(rest: TokenRequest, rest_sink: TokenSink) -> Callable[[], None]:
            return AnswerHandle(self.engine, self.engine.submit(rest, rest_sink)).cancel

        tokens = _tokens(request, prompt.tokens, constraint)
        return Continuation(prompt, tokens, sink, self._tokenizer, self.engine.vocabulary_size, submit)

    def submit_chunks(self, request: GenerationRequest, vocabulary: str, listener: ChunkListener) -> AnswerHandle:
        """Admits a request of another machine, which holds the passages and verifies the chunks; see ``submit``.

        The prompt has the passages in the given order, since the answer may number them. Quoted sentences, which boxes
        of earlier versions ask for, are emitted by position, other answers as tokens if the vocabularies are the same,
        else as text. The not-found decision is left to the caller.

        Args:
            request: The request.
            vocabulary: Identity of the caller's vocabulary; compared with ``vocabulary``.
            listener: Receives the chunks.

        Raises:
            InvalidRequest, Overloaded, RequestTooLarge, DeadlineExceeded, NotReady: It was not admitted.
        """
        sink: TokenSink
        if request.mode is AnswerMode.QUOTE:
            sink = QuoteChunkStream(listener, self._clock, self._quotes(request))
            return AnswerHandle(self.engine, self.engine.submit(_nothing_to_generate(request, FinishReason.STOP), sink))
        prompt = self._prompts.encode(request, self.engine.capacity, as_given=True)
        detokenizer, stops = self._tokenizer.detokenizer(), request.sampling.stop
        constraint: Constraint = FreeText(self._end_tokens)
        if prompt.trace is not None:
            reader = TraceReader(prompt.trace, [ranked.passage for ranked in prompt.passages], prompt.numbering)
            trace = TraceTokens(reader, self._tokenizer.special_id, detokenizer, stops, request.sampling.max_tokens)
            sink = TraceChunkStream(listener, self._clock, trace)
        elif vocabulary == self.vocabulary:
            sink = TokenChunkStream(listener, self._clock, detokenizer, stops)
        else:
            sink = TextChunkStream(listener, self._clock, detokenizer, stops)
        if request.format is not None:
            constraint = self._grammars.compile(request.format, request.client)
        tokens = _traced(_tokens(request, prompt.tokens, constraint), prompt)
        return AnswerHandle(self.engine, self.engine.submit(tokens, sink))

    def _prepare(self, request: GenerationRequest, listener: Listener) -> tuple[TokenRequest, TokenSink]:
        """Returns the engine's request and the sink of its tokens."""
        grammar = None if request.format is None else self._grammars.compile(request.format, request.client)
        if not self._may_hold_an_answer(request):
            text = self._prompt.not_found_answer(request.question, len(request.passages)) if grammar is None else ""
            return _nothing_to_generate(request, FinishReason.NOT_FOUND), NotFoundStream(listener, self._clock, text)
        if request.mode is AnswerMode.QUOTE:
            passages = [ranked.passage for ranked in request.passages]
            quoted = QuoteStream(listener, self._clock, self._quotes(request), passages)
            return _nothing_to_generate(request, FinishReason.STOP), quoted
        prompt, constraint, sink = self._compose(request, grammar, listener)
        return _traced(replace(_tokens(request, prompt.tokens, constraint), spans=prompt.spans), prompt), sink

    def _compose(
        self, request: GenerationRequest, grammar: Constraint | None, listener: Listener, as_chat: bool = False
    ) -> tuple[Prompt, Constraint, TokenSink]:
        """Returns the prompt, the constraint and the sink."""
        prompt = self._prompts.encode(request, self.engine.capacity, as_chat=as_chat)
        kept, numbering = prompt.passages, prompt.numbering
        passages = [ranked.passage for ranked in kept]
        detokenizer, stops = self._tokenizer.detokenizer(), request.sampling.stop
        if grammar is not None:
            return prompt, grammar, FormattedStream(listener, self._clock, detokenizer)
        free = FreeText(self._end_tokens)
        if prompt.trace is not None:
            reader = TraceReader(prompt.trace, passages, numbering)
            trace = TraceTokens(reader, self._tokenizer.special_id, detokenizer, stops, request.sampling.max_tokens)
            check = None
            if request.mode is AnswerMode.CITE:
                check = Attributor(kept, self._cite.make_stemmer())
            return prompt, free, TraceStream(listener, self._clock, trace, self._prompt.not_found, check)
        if request.mode is AnswerMode.FREE:
            citations = CitationMapper(passages, numbering)
            return prompt, free, FreeStream(listener, self._clock, detokenizer, stops, citations)
        checked = CheckedText(
            passages, numbering, Attributor(kept, self._cite.make_stemmer(), request.question), self._cite.unsupported
        )
        not_found = self._prompt.not_found_answer(request.question, len(passages))
        return prompt, free, CiteStream(listener, self._clock, detokenizer, stops, checked, not_found)

    def _may_hold_an_answer(self, request: GenerationRequest) -> bool:
        if request.mode is AnswerMode.FREE:
            return bool(request.passages)
        sentences = any(ranked.sentences for ranked in request.passages)
        return sentences and request.evidence >= self._quote.not_found_below

    def _quotes(self, request: GenerationRequest) -> tuple[Quote, ...]:
        return choose_quotes(request.question, request.passages, request.max_sentences, self._quote.margin)


def _traced(request: TokenRequest, prompt: Prompt) -> TokenRequest:
    """Adds room for the sections before the answer."""
    if prompt.trace is None:
        return request
    sampling = replace(request.sampling, max_tokens=request.sampling.max_tokens + prompt.trace.tokens, stop=())
    return replace(request, sampling=sampling)


def _tokens(request: GenerationRequest, prompt: tuple[int, ...], constraint: Constraint) -> TokenRequest:
    return TokenRequest(
        request_id=request.request_id,
        prompt=prompt,
        constraint=constraint,
        sampling=request.sampling,
        priority=request.priority,
        client=request.client,
        trust_domain=request.trust_domain,
        deadline=request.deadline,
        epoch=request.epoch,
    )


def _nothing_to_generate(request: GenerationRequest, reason: FinishReason) -> TokenRequest:
    """Returns the request of an answer that needs no model, and so no room for tokens."""
    return replace(_tokens(request, (), NoGeneration(reason)), sampling=replace(request.sampling, max_tokens=0))
