"""Prompt layout: system text, passages in order, the question. What requests share comes first.

A question with its passages as the tokens of a prompt.

Where a prompt's passages stand in it, and the text in which each of them is computed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import AnswerMode, KvReuse
from edge_rag.engine.kv_cache.page_copy import PassageSpan
from edge_rag.errors import RequestTooLarge
from edge_rag.generator.prompt.passage_order import PassageArranger
from edge_rag.generator.prompt.tokenizer import ChatTokenizer


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Texts around a question.

    Attributes:
        system: What the model is told to do.
        not_found: The answer where the passages hold none.
    """

    system: str = "Answer with a sentence from the passages and cite it."
    not_found: str = "I could not find that in the documents."


def user_text(passages: Sequence[str], question: str) -> str:
    """Lays out the user's turn: ``[1] passage``, a blank line, ``[2] passage``, ..., ``Question: question``."""
    return "".join(passage_text(number, text) for number, text in enumerate(passages, 1)) + f"Question: {question}"


def passage_text(number: int, text: str) -> str:
    """Lays out one passage; ``number`` counts from 1."""
    return f"[{number}] {text}\n\n"


def passages_that_fit(lengths: Sequence[int], room: int) -> int:
    """Returns how many passages fit, taken from the front.

    Args:
        lengths: Tokens of each passage as laid out.
        room: Tokens there are for all of them.
    """
    for count, length in enumerate(lengths):
        room -= length
        if room < 0:
            return count
    return len(lengths)


def passage_spans(
    prompt: Sequence[int],
    first: int,
    laid_out: Sequence[Sequence[int]],
    alone: Sequence[Sequence[int]],
    page_tokens: int,
    recompute: int,
) -> tuple[PassageSpan, ...]:
    """Finds the parts of a prompt that may be copied.

    A passage's text alone is the prompt's beginning, the passage, and its last token again until a page and one token
    more are full. Its first tokens in the prompt, and its number where it has another one alone, are not part of the
    span; the first passage sees the same alone and here, so that none of its tokens has to be computed twice.

    Args:
        prompt: The prompt.
        first: Position of the first passage's first token.
        laid_out: Tokens of each passage as it stands in the prompt.
        alone: Tokens of each passage as it stands in the text in which it is computed alone.
        page_tokens: Tokens a page holds.
        recompute: Tokens of each passage after the first that are computed in the prompt, after those that differ.

    Returns:
        The spans in order; none where the prompt's tokens are not those of its parts in a row.
    """
    ends = [*accumulate(map(len, laid_out), initial=first)]
    if list(prompt[first : ends[-1]]) != [token for tokens in laid_out for token in tokens]:
        return ()
    spans = []
    for start, here, only in zip(ends[:-1], laid_out, alone, strict=True):
        common = _common_end(here, only)
        skipped = 0 if start == first else recompute
        if common > skipped:
            text = (*prompt[:first], *only)
            filled = (*text, *[only[-1]] * (-len(text) % page_tokens + 1))
            begin = start + len(here) - common + skipped
            spans.append(PassageSpan(begin, common - skipped, filled, first + len(only) - common + skipped))
    return tuple(spans)


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many tokens the ends of two texts have in common."""
    count = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, as tokens and as text.

    Attributes:
        tokens: As the model here reads it.
        system: The system's turn.
        user: The user's turn.
        passages: The passages in it, best first.
        numbering: Their indices, in the order in which it has them.
        spans: Parts of it that may be copied from where they were computed alone.
    """

    tokens: tuple[int, ...]
    system: str
    user: str
    passages: tuple[RankedPassage, ...]
    numbering: tuple[int, ...]
    spans: tuple[PassageSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageReuse:
    """How passages are copied where a collection wants that.

    Attributes:
        page_tokens: Tokens a page of the cache holds.
        recompute: Tokens at the beginning of each passage but the first that are computed in the prompt, so that they
            see what stands before them; beside its number where it was computed under another one.
    """

    page_tokens: int
    recompute: int


class PromptEncoder:
    """Lays prompts out. Any thread.

    Args:
        tokenizer: The model's.
        settings: Texts around the question.
        arranger: Puts passages in order.
        reuse: How passages are copied; None where the model cannot.
    """

    def __init__(
        self, tokenizer: ChatTokenizer, settings: PromptSettings, arranger: PassageArranger, reuse: PassageReuse | None
    ) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._arranger = arranger
        self._reuse = reuse
        self._system_tokens = len(tokenizer.encode_chat(settings.system, ""))

    def encode(self, request: GenerationRequest, capacity: int, as_given: bool = False) -> Prompt:
        """Lays a prompt out with as many passages as fit beside the answer, from the front.

        Args:
            request: The question and its passages, at least one.
            capacity: Most tokens that prompt and answer may come to together.
            as_given: Whether the prompt has the passages in the order in which they came.

        Raises:
            RequestTooLarge: Not even one passage fits.
        """
        room = capacity - request.sampling.max_tokens
        texts = [ranked.passage.text for ranked in request.passages]
        lengths = [len(ids) for ids in self._laid_out(texts)]
        question = len(self._tokenizer.encode(user_text([], request.question)))
        kept = max(1, passages_that_fit(lengths, room - self._system_tokens - question))
        while True:
            numbering = tuple(range(kept)) if as_given else self._numbering(request, request.passages[:kept])
            ordered = [texts[index] for index in numbering]
            system, user = self._settings.system, user_text(ordered, request.question)
            prompt = self._tokenizer.encode_chat(system, user)
            if len(prompt) <= room:
                passages = request.passages[:kept]
                self._arranger.asked([ranked.passage for ranked in passages])
                spans = self._spans(request, prompt, ordered)
                return Prompt(tuple(prompt), system, user, passages, numbering, spans)
            if kept == 1:
                raise RequestTooLarge("tokens", len(prompt) + request.sampling.max_tokens, capacity)
            # Lengths of parts need not add up exactly to the length of the whole.
            kept -= 1

    def _numbering(self, request: GenerationRequest, kept: Sequence[RankedPassage]) -> tuple[int, ...]:
        """A format can ask for the numbers of passages, which the client knows by rank; then they stay as they are."""
        if request.format is not None:
            return tuple(range(len(kept)))
        return self._arranger.places([ranked.passage for ranked in kept])

    def _spans(
        self, request: GenerationRequest, prompt: Sequence[int], texts: Sequence[str]
    ) -> tuple[PassageSpan, ...]:
        reuse = self._reuse
        if reuse is None or request.kv_reuse is not KvReuse.PASSAGE:
            return ()
        laid_out = self._laid_out(texts)
        bare = self._tokenizer.encode_chat(self._settings.system, user_text([], request.question))
        first = next(place for place, (here, there) in enumerate(zip(prompt, bare, strict=False)) if here != there)
        # Keys and values of a passage's words hold the number before it, and a model that writes [n] takes n from them.
        # Where it writes none, or one that only decides between equals, a passage is computed once for all places.
        numbered = request.mode is AnswerMode.FREE
        alone = laid_out if numbered else [ids for text in texts for ids in self._laid_out([text])]
        return passage_spans(prompt, first, laid_out, alone, reuse.page_tokens, reuse.recompute)

    def _laid_out(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer.encode_all([passage_text(number, text) for number, text in enumerate(texts, 1)])
