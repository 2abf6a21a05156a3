"""An answer that somebody else writes: held to the request's rules word by word, and gone on with where they stop.

say          what was said elsewhere is checked, told to the listener and remembered
finish       it was all of the answer
go_on        what was said becomes part of the prompt, and the engine writes the rest into the same stream
close        nothing more comes, however it ended; until then the engine that is to go on is kept
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import GeneratedChunk, QuoteChunk, TextChunk, TokenChunk
from edge_rag.engine.constraint import AnyToken, Constraint, Ended, Forced, Masked, Move, OneOf
from edge_rag.engine.ports import Outcome, TokenSink
from edge_rag.engine.request import TokenRequest
from edge_rag.errors import EdgeRagError, RemoteFailed
from edge_rag.generator.constraints.quote import Quotation
from edge_rag.generator.prompt.template import Prompt
from edge_rag.generator.prompt.tokenizer import ChatTokenizer


@runtime_checkable
class TextSink(TokenSink, Protocol):
    """Where text goes that did not come as tokens."""

    def hear(self, text: str) -> bool:
        """Takes the next text; returns True if the answer ends here, whatever would follow."""
        ...

    def remember(self, tokens: Sequence[int]) -> None:
        """Takes the tokens of the text heard so far, after which tokens follow."""
        ...


class Continuation:
    """An answer on its way. For one thread at a time.

    Args:
        prompt: What is answered.
        request: The same for the engine, nothing said yet.
        sink: Where the answer goes.
        tokenizer: The engine's.
        vocabulary_size: Number of its tokens.
        submit: Hands a request to the engine and returns how to cancel it.
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
        self._heard = 0
        self._release = _nothing

    @property
    def said_tokens(self) -> int:
        """Number of tokens said so far; of text, as the tokenizer here cuts its pieces."""
        return len(self._tokens) + self._heard

    def say(self, said: GeneratedChunk) -> FinishReason | None:
        """Takes what was said next and tells it.

        Returns:
            Why the answer ends here, so that ``finish`` is to follow; None where it goes on.

        Raises:
            RemoteFailed: It may not be said; nothing of it was told.
        """
        match said:
            case QuoteChunk():
                ended = self._extend(self._sentence(said))
            case TokenChunk():
                ended = self._extend(said.tokens)
            case TextChunk():
                ended = self._hear(said.text)
        if ended:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.said_tokens >= self._request.sampling.max_tokens else None

    def finish(self, reason: FinishReason, usage: Usage | None, queue_s: float, compute_s: float) -> None:
        """Ends the answer well.

        Args:
            reason: Why it ended, as whoever wrote it says, or ``say``.
            usage: What it used there; None where they do not say. Of that only what cannot be counted here is believed,
                and no more of it than there can be.
            queue_s: How long it waited, seconds.
            compute_s: How long it was written, seconds.

        Raises:
            RemoteFailed: It cannot end here; nothing was told.
        """
        if not self.said_tokens:
            raise RemoteFailed("it ended without a word")
        if reason is not FinishReason.LENGTH and self._must_go_on():
            raise RemoteFailed("it ended before the answer had its form")
        self._sink.finish(Outcome(reason, self._counted(usage or Usage()), queue_s, compute_s))

    def fail(self, error: EdgeRagError) -> None:
        """Ends the answer badly."""
        self._sink.fail(error)

    def when_closed(self, release: Callable[[], None]) -> None:
        """Has something done once it is closed."""
        self._release = release

    def close(self) -> None:
        """Lets the engine go; idempotent."""
        release, self._release = self._release, _nothing
        release()

    def go_on(self) -> Callable[[], None]:
        """Has the engine write the rest; from here on the engine's thread tells.

        Returns:
            Cancels it, idempotent and from any thread.

        Raises:
            Overloaded, RequestTooLarge, DeadlineExceeded, NotReady: The engine does not take it.
        """
        said = self._tokens
        if self._text:
            said = self._tokenizer.encode("".join(self._text))
            assert isinstance(self._sink, TextSink)
            self._sink.remember(said)
        left = self._request.sampling.max_tokens - len(said)
        if left <= 0:
            self._sink.finish(Outcome(FinishReason.LENGTH, Usage(len(self._request.prompt), 0, len(said)), 0.0, 0.0))
            return _nothing
        request = replace(
            self._request,
            prompt=(*self._request.prompt, *said),
            constraint=self._constraint,
            sampling=replace(self._request.sampling, max_tokens=left),
        )
        return self._submit(request, _Rest(self._sink, len(said)))

    def _counted(self, claimed: Usage) -> Usage:
        prompt, said = len(self._request.prompt), self.said_tokens
        return Usage(
            prompt_tokens=prompt,
            cached_prompt_tokens=min(claimed.cached_prompt_tokens, prompt),
            copied_prompt_tokens=min(claimed.copied_prompt_tokens, prompt),
            generated_tokens=said,
            forced_tokens=min(claimed.forced_tokens, said),
            model_steps=min(claimed.model_steps, prompt + said),
        )

    def _sentence(self, said: QuoteChunk) -> tuple[int, ...]:
        """Returns the tokens of a sentence that may be quoted next."""
        quotation, passages = self._constraint, self.prompt.passages
        if not isinstance(quotation, Quotation) or not 0 <= said.passage < len(passages):
            raise RemoteFailed("it quoted what was not there to be quoted")
        sentences = passages[said.passage].sentences
        if quotation.ended or not 0 <= said.sentence < len(sentences):
            raise RemoteFailed("it quoted what was not there to be quoted")
        place = said.passage, sentences[said.sentence].start
        for candidate in quotation.left:
            if (candidate.passage, candidate.start) == place:
                return candidate.tokens
        raise RemoteFailed("it quoted a sentence that may not follow")

    def _extend(self, tokens: tuple[int, ...]) -> bool:
        room = self._request.sampling.max_tokens - self.said_tokens
        if self._text or not tokens:
            raise RemoteFailed("it mixed text and tokens")
        constraint = self._constraint
        for token in tokens[:room]:
            if not self._allows(constraint.next(), token):
                raise RemoteFailed("it said what the answer's form does not allow")
            constraint = constraint.after((token,))
        self._constraint = constraint
        self._tokens += tokens[:room]
        return self._sink.extend(tokens[:room]) or isinstance(constraint.next(), Ended)

    def _hear(self, text: str) -> bool:
        if not isinstance(self._sink, TextSink) or self._tokens or not text:
            raise RemoteFailed("it said text where the answer has another form")
        self._text.append(text)
        self._heard += len(self._tokenizer.encode(text))
        return self._sink.hear(text)

    def _must_go_on(self) -> bool:
        """Whether an answer with a form of its own is not complete yet; quotations are after each sentence."""
        free = isinstance(self._sink, TextSink) or isinstance(self._constraint, Quotation)
        return not free and not isinstance(self._constraint.next(), Ended)

    def _allows(self, move: Move, token: int) -> bool:
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


class _Rest:
    """The rest of an answer whose beginning the engine took for a part of the prompt. A ``TokenSink``."""

    def __init__(self, sink: TokenSink, said: int) -> None:
        self._sink = sink
        self._said = said

    def extend(self, tokens: tuple[int, ...]) -> bool:
        return self._sink.extend(tokens)

    def finish(self, outcome: Outcome) -> None:
        usage = replace(
            outcome.usage,
            prompt_tokens=max(0, outcome.usage.prompt_tokens - self._said),
            generated_tokens=outcome.usage.generated_tokens + self._said,
        )
        usage = replace(usage, cached_prompt_tokens=min(usage.cached_prompt_tokens, usage.prompt_tokens))
        self._sink.finish(replace(outcome, usage=usage))

    def fail(self, error: EdgeRagError) -> None:
        self._sink.fail(error)


def _nothing() -> None:
    """There is nothing to do."""
