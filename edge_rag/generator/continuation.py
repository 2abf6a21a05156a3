"""An answer generated elsewhere: verified chunk by chunk, and resumed by the local engine if the chunks stop.

append          verifies a chunk, emits it and remembers its tokens
finish          the answer is complete
resume_locally  appends the tokens so far to the prompt; the engine writes the rest into the same stream
close           no more chunks come; until then the engine is kept from being closed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import GeneratedChunk, QuoteChunk, TextChunk, TokenChunk
from edge_rag.engine.constraint import AnyToken, Constraint, Ended, Forced, Masked, NextTokens, OneOf
from edge_rag.engine.ports import Outcome, TokenSink
from edge_rag.engine.request import TokenRequest
from edge_rag.errors import EdgeRagError, RemoteFailed
from edge_rag.generator.constraints.quote import Quotation
from edge_rag.generator.prompt.template import Prompt
from edge_rag.generator.prompt.tokenizer import ChatTokenizer


@runtime_checkable
class TextSink(TokenSink, Protocol):
    """A token sink that also takes text."""

    def extend_text(self, text: str) -> bool:
        """Takes the next text; returns True if the answer ends here, whatever would follow."""
        ...

    def set_context(self, tokens: Sequence[int]) -> None:
        """Takes the tokens of the text so far, after which tokens follow."""
        ...


class Continuation:
    """For one thread at a time.

    Args:
        prompt: The prompt.
        request: The engine's request for the whole answer.
        sink: Receives the answer.
        tokenizer: The engine's.
        vocabulary_size: Number of its tokens.
        submit: Submits a request to the engine and returns a function that cancels it.
    """

    def __init__(
        self,
        prompt: Prompt,
        request: TokenRequest,
        sink: TokenSink,
        tokenizer: ChatTokenizer,
        vocabulary_size: int,
        submit: Callable[[TokenRequest, TokenSink], Callable[[], None]],
    ) -> None:
        self.prompt = prompt
        self._request = request
        self._constraint: Constraint = request.constraint
        self._sink = sink
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._submit = submit
        self._tokens: list[int] = []
        self._text: list[str] = []
        self._text_tokens = 0
        self._on_close: Callable[[], None] = _do_nothing

    @property
    def generated_tokens(self) -> int:
        """Number of tokens so far; of text, each chunk tokenized on its own."""
        return len(self._tokens) + self._text_tokens

    def append(self, chunk: GeneratedChunk) -> FinishReason | None:
        """Verifies a chunk and emits it.

        Returns:
            Why the answer ends here, so that ``finish`` has to follow; None if it goes on.

        Raises:
            RemoteFailed: The chunk violates the request's constraints; nothing of it was emitted.
        """
        match chunk:
            case QuoteChunk():
                ended = self._append_tokens(self._quoted_tokens(chunk))
            case TokenChunk():
                ended = self._append_tokens(chunk.tokens)
            case TextChunk():
                ended = self._append_text(chunk.text)
        if ended:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.generated_tokens >= self._request.sampling.max_tokens else None

    def finish(self, reason: FinishReason, usage: Usage | None, queue_s: float, compute_s: float) -> None:
        """Ends the answer successfully.

        Args:
            reason: From the remote, or from ``append``.
            usage: As the remote reports it, or None. Tokens are counted here; other counters are clamped to what is
                possible.
            queue_s: Queueing time, seconds.
            compute_s: Time of generation, seconds.

        Raises:
            RemoteFailed: The answer is empty or incomplete; nothing was emitted.
        """
        if not self.generated_tokens:
            raise RemoteFailed("the remote ended the answer without a token")
        if reason is not FinishReason.LENGTH and self._is_incomplete():
            raise RemoteFailed("the remote ended the answer before it was complete in its format")
        self._sink.finish(Outcome(reason, self._clamped(usage or Usage()), queue_s, compute_s))

    def fail(self, error: EdgeRagError) -> None:
        """Ends the answer with an error."""
        self._sink.fail(error)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Sets what ``close`` calls, once."""
        self._on_close = callback

    def close(self) -> None:
        """Releases the engine; idempotent."""
        callback, self._on_close = self._on_close, _do_nothing
        callback()

    def resume_locally(self) -> Callable[[], None]:
        """Lets the engine write the rest; from here on the engine's thread emits.

        Returns:
            A function that cancels it, idempotent and from any thread.

        Raises:
            Overloaded, RequestTooLarge, DeadlineExceeded, NotReady: The engine did not admit it.
        """
        tokens = self._tokens
        if self._text:
            tokens = self._tokenizer.encode("".join(self._text))
            assert isinstance(self._sink, TextSink)
            self._sink.set_context(tokens)
        remaining = self._request.sampling.max_tokens - len(tokens)
        if remaining <= 0:
            self._sink.finish(Outcome(FinishReason.LENGTH, Usage(len(self._request.prompt), 0, len(tokens)), 0.0, 0.0))
            return _do_nothing
        request = replace(
            self._request,
            prompt=(*self._request.prompt, *tokens),
            constraint=self._constraint,
            sampling=replace(self._request.sampling, max_tokens=remaining),
        )
        return self._submit(request, _ResumedSink(self._sink, len(tokens)))

    def _clamped(self, reported: Usage) -> Usage:
        prompt, generated = len(self._request.prompt), self.generated_tokens
        return Usage(
            prompt_tokens=prompt,
            cached_prompt_tokens=min(reported.cached_prompt_tokens, prompt),
            copied_prompt_tokens=min(reported.copied_prompt_tokens, prompt),
            generated_tokens=generated,
            forced_tokens=min(reported.forced_tokens, generated),
            model_steps=min(reported.model_steps, prompt + generated),
        )

    def _quoted_tokens(self, quote: QuoteChunk) -> tuple[int, ...]:
        """Returns the tokens of a sentence that may be quoted next."""
        quotation, passages = self._constraint, self.prompt.passages
        if not isinstance(quotation, Quotation) or not 0 <= quote.passage < len(passages):
            raise RemoteFailed("the remote quoted a sentence that it was not sent")
        sentences = passages[quote.passage].sentences
        if quotation.ended or not 0 <= quote.sentence < len(sentences):
            raise RemoteFailed("the remote quoted a sentence that it was not sent")
        place = quote.passage, sentences[quote.sentence].start
        for candidate in quotation.left:
            if (candidate.passage, candidate.start) == place:
                return candidate.tokens
        raise RemoteFailed("the remote quoted a sentence that is not allowed here")

    def _append_tokens(self, tokens: tuple[int, ...]) -> bool:
        limit = self._request.sampling.max_tokens - self.generated_tokens
        if self._text or not tokens:
            raise RemoteFailed("the remote sent no tokens, or tokens after text")
        constraint = self._constraint
        for token in tokens[:limit]:
            if not self._allows(constraint.next(), token):
                raise RemoteFailed("the remote sent a token that the answer's constraint does not allow")
            constraint = constraint.after((token,))
        self._constraint = constraint
        self._tokens += tokens[:limit]
        return self._sink.extend(tokens[:limit]) or isinstance(constraint.next(), Ended)

    def _append_text(self, text: str) -> bool:
        if not isinstance(self._sink, TextSink) or self._tokens or not text:
            raise RemoteFailed("the remote sent no text, or text where tokens or quotes are required")
        self._text.append(text)
        self._text_tokens += len(self._tokenizer.encode(text))
        return self._sink.extend_text(text)

    def _is_incomplete(self) -> bool:
        """Whether a formatted answer is not complete; quotations are complete after each sentence."""
        unformatted = isinstance(self._sink, TextSink) or isinstance(self._constraint, Quotation)
        return not unformatted and not isinstance(self._constraint.next(), Ended)

    def _allows(self, move: NextTokens, token: int) -> bool:
        match move:
            case AnyToken():
                return 0 <= token < self._vocabulary_size
            case OneOf():
                return token in move.allowed
            case Masked():
                return 0 <= token < len(move.allowed) and bool(move.allowed[token])
            case Forced():
                return token == move.tokens[0]
            case Ended():
                return False


class _ResumedSink:
    """A ``TokenSink`` that corrects usage: the engine counts the resumed beginning of the answer as prompt."""

    def __init__(self, sink: TokenSink, resumed_tokens: int) -> None:
        self._sink = sink
        self._resumed = resumed_tokens

    def extend(self, tokens: tuple[int, ...]) -> bool:
        return self._sink.extend(tokens)

    def finish(self, outcome: Outcome) -> None:
        usage = replace(
            outcome.usage,
            prompt_tokens=max(0, outcome.usage.prompt_tokens - self._resumed),
            generated_tokens=outcome.usage.generated_tokens + self._resumed,
        )
        usage = replace(usage, cached_prompt_tokens=min(usage.cached_prompt_tokens, usage.prompt_tokens))
        self._sink.finish(replace(outcome, usage=usage))

    def fail(self, error: EdgeRagError) -> None:
        self._sink.fail(error)


def _do_nothing() -> None:
    pass
