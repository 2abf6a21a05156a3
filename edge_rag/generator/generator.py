"""Generates answers to questions with passages: prompt, constraint and event stream around the engine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from edge_rag.core.answer import UnsupportedText
from edge_rag.core.generation import CompletionRequest, GenerationRequest
from edge_rag.core.query import AnswerMode
from edge_rag.engine.constraint import Constraint
from edge_rag.engine.engine import Engine
from edge_rag.engine.ports import TokenSink
from edge_rag.engine.request import TokenRequest
from edge_rag.generator.citations.attribution import Attributor, Stemmer
from edge_rag.generator.cite_stream import CheckedText, CiteStream
from edge_rag.generator.constraints.grammar import GrammarCompiler
from edge_rag.generator.constraints.plain import FreeText
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.prompt.template import Prompt, PromptEncoder, PromptSettings
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.generator.quote_generator import AnswerHandle, QuoteGenerator, QuoteSettings, token_request
from edge_rag.generator.streams import (
    AnswerSink,
    ChunkListener,
    FormattedStream,
    FreeStream,
    Listener,
    PlainStream,
    TextChunkStream,
    TokenChunkStream,
)


@dataclass(frozen=True, slots=True)
class CiteSettings:
    """How the text of CITE mode is checked."""

    make_stemmer: Callable[[], Stemmer]
    unsupported: UnsupportedText = UnsupportedText.MARK


class AnswerGenerator(QuoteGenerator):
    """Quotes, and generates answers with a language model. All methods may be called from any thread."""

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
        super().__init__(engine, quote, prompt, clock)
        self._end_tokens = end_tokens
        self._tokenizer = tokenizer
        self._grammars = grammars
        self._cite = cite
        self._prompts = prompts
        self.vocabulary = hashlib.sha256(tokenizer.definition.encode()).hexdigest()

    def complete(self, request: CompletionRequest, listener: Listener) -> AnswerHandle:
        """Admits a conversation that the language model continues; see ``QuoteGenerator.complete``."""
        conversation, sampling = request.conversation, request.sampling
        detokenizer = self._tokenizer.detokenizer()
        constraint: Constraint = FreeText(self._end_tokens)
        sink: TokenSink = PlainStream(listener, self._clock, detokenizer, sampling.stop)
        if request.format is not None:
            constraint = self._grammars.compile(request.format, request.client)
            sink = FormattedStream(listener, self._clock, detokenizer)
        tokens = TokenRequest(
            request_id=request.request_id,
            prompt=tuple(self._tokenizer.encode_conversation(conversation.system, conversation.turns)),
            constraint=constraint,
            sampling=sampling,
            priority=request.priority,
            client=request.client,
            trust_domain=f"conversations/{request.client}",  # no collection has such a name
            deadline=request.deadline,
        )
        return AnswerHandle(self.engine, self.engine.submit(tokens, sink))

    def open_continuation(self, request: GenerationRequest, listener: Listener) -> Continuation | None:
        """Prepares an answer that another machine generates; None if no model is needed: a quoted or extracted answer,
        and the not-found answer.

        The other machine gets no earlier turns, so its prompt, and the one that goes on here, have none.
        """
        if not request.mode.needs_model or not self._may_hold_an_answer(request):
            return None
        grammar = None if request.format is None else self._grammars.compile(request.format, request.client)
        alone = replace(request, turns=())
        prompt, constraint, sink = self._compose(alone, grammar, listener)

        def submit(rest: TokenRequest, rest_sink: TokenSink) -> Callable[[], None]:
            return AnswerHandle(self.engine, self.engine.submit(rest, rest_sink)).cancel

        tokens = token_request(request, prompt.tokens, constraint)
        return Continuation(prompt, tokens, sink, self._tokenizer, self.engine.vocabulary_size, submit)

    def submit_chunks(self, request: GenerationRequest, vocabulary: str, listener: ChunkListener) -> AnswerHandle:
        """Admits a request of another machine; see ``QuoteGenerator.submit_chunks``.

        The prompt has the passages in the given order, since the answer may number them. Text that is not quoted is
        emitted as tokens if the vocabularies are the same, else as text.
        """
        if not request.mode.needs_model:
            return super().submit_chunks(request, vocabulary, listener)
        sink: TokenSink
        prompt = self._prompts.encode(request, self.engine.capacity, as_given=True)
        detokenizer, stops = self._tokenizer.detokenizer(), request.sampling.stop
        constraint: Constraint = FreeText(self._end_tokens)
        if vocabulary == self.vocabulary:
            sink = TokenChunkStream(listener, self._clock, detokenizer, stops)
        else:
            sink = TextChunkStream(listener, self._clock, detokenizer, stops)
        if request.format is not None:
            constraint = self._grammars.compile(request.format, request.client)
        tokens = token_request(request, prompt.tokens, constraint)
        return AnswerHandle(self.engine, self.engine.submit(tokens, sink))

    def _prepare(self, request: GenerationRequest, listener: Listener) -> tuple[TokenRequest, AnswerSink]:
        """Returns the engine's request and the sink of its tokens."""
        if not request.mode.needs_model:
            return super()._prepare(request, listener)
        grammar = None if request.format is None else self._grammars.compile(request.format, request.client)
        if not self._may_hold_an_answer(request):
            return self._not_found(request, listener, "" if grammar is not None else self._not_found_text(request))
        prompt, constraint, sink = self._compose(request, grammar, listener)
        return replace(token_request(request, prompt.tokens, constraint), spans=prompt.spans), sink

    def _compose(
        self, request: GenerationRequest, grammar: Constraint | None, listener: Listener
    ) -> tuple[Prompt, Constraint, AnswerSink]:
        prompt = self._prompts.encode(request, self.engine.capacity)
        constraint, sink = self._answer_of(request, prompt, grammar, listener)
        sink.prompt_passages = len(prompt.passages)
        return prompt, constraint, sink

    def _answer_of(
        self, request: GenerationRequest, prompt: Prompt, grammar: Constraint | None, listener: Listener
    ) -> tuple[Constraint, AnswerSink]:
        """Returns the constraint and the sink of the answer to a prompt."""
        detokenizer, stops = self._tokenizer.detokenizer(), request.sampling.stop
        if grammar is not None:
            return grammar, FormattedStream(listener, self._clock, detokenizer)
        free = FreeText(self._end_tokens)
        if request.mode is AnswerMode.FREE:
            return free, FreeStream(listener, self._clock, detokenizer, stops)
        return free, self._cited(request, prompt, listener)

    def _cited(self, request: GenerationRequest, prompt: Prompt, listener: Listener) -> CiteStream:
        """Returns the sink of a checked answer."""
        offered, stemmer = request.passages, self._cite.make_stemmer()
        wider = None
        if len(offered) > len(prompt.passages) or any(ranked.passage.context for ranked in offered):
            wider = partial(Attributor, offered, stemmer, request.question, headings=True)
        checked = CheckedText(
            [ranked.passage for ranked in offered],
            prompt.numbering,
            Attributor(prompt.passages, stemmer, request.question),
            self._cite.unsupported,
            wider,
        )
        detokenizer, stops = self._tokenizer.detokenizer(), request.sampling.stop
        not_found = self._prompt.not_found_answer(request.question, len(prompt.passages))
        return CiteStream(listener, self._clock, detokenizer, stops, checked, not_found)

    def _may_hold_an_answer(self, request: GenerationRequest) -> bool:
        if request.mode is AnswerMode.FREE:
            return bool(request.passages)
        return super()._may_hold_an_answer(request)
