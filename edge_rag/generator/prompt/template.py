"""Renders prompts: system text, earlier turns, passages in order, question; what requests share comes first.

Also finds the spans of a prompt whose KV can be copied from the passage computed in isolation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Final

from edge_rag.analysis.languages import language_of
from edge_rag.core.generation import GenerationRequest
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import KvReuse
from edge_rag.engine.sequence import PassageSpan
from edge_rag.errors import ModelFolderInvalid, RequestTooLarge
from edge_rag.generator.messages import AUTO, Message, message
from edge_rag.generator.prompt.history import history_budget, left_out, messages
from edge_rag.generator.prompt.tokenizer import ChatTokenizer

SYSTEM: Final = "Answer with a sentence from the passages and cite it."
"""The system message; the language models in the catalogue were measured with it."""


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Texts of the prompt.

    Attributes:
        language: Language of what the box says itself: an ISO 639-1 code, "auto" for that of the question, or None to
            say ``not_found`` always.
    """

    not_found: str = "I could not find that in the documents."
    language: str | None = None

    def not_found_answer(self, question: str, among: int) -> str:
        """Returns the answer to a question that the passages do not answer."""
        if self.language is None:
            return self.not_found
        language = language_of(question) if self.language == AUTO else self.language
        return message(Message.NOT_FOUND if among else Message.NO_PASSAGES, language)


def user_text(passages: Sequence[str], question: str) -> str:
    """Renders the user message: ``[1] passage``, a blank line, ``[2] passage``, ..., ``Question: question``."""
    numbered = "".join(passage_text(number, text) for number, text in enumerate(passages, 1))
    return f"{numbered}Question: {question}"


def passage_text(number: int, text: str) -> str:
    """Renders one passage; ``number`` counts from 1."""
    return f"[{number}] {text}\n\n"


def passages_that_fit(lengths: Sequence[int], budget: int) -> int:
    """Returns how many passages, from the front, fit into a token budget."""
    for count, length in enumerate(lengths):
        budget -= length
        if budget < 0:
            return count
    return len(lengths)


def passage_spans(
    prompt: Sequence[int],
    first: int,
    rendered: Sequence[Sequence[int]],
    isolated: Sequence[Sequence[int]],
    page_tokens: int,
    recompute: int,
    beginning: Sequence[int] | None = None,
) -> tuple[PassageSpan, ...]:
    """Finds the spans of a prompt whose KV may be copied.

    The isolated text of a passage is the prompt's beginning without earlier turns, the passage, and its last token
    repeated until the last page is full plus one token. The first tokens of a passage in the prompt, and its number if
    it differs in the isolated text, are not part of its span. Without earlier turns the first passage has the same
    context in both, so all of its tokens are.

    Args:
        first: Position of the first passage's first token.
        recompute: Tokens of each passage after the first that are recomputed in the prompt, after those that differ;
            with earlier turns of the first one, too.
        beginning: Tokens before the passage in its isolated text; None for those before the first one in the prompt.

    Returns:
        The spans in order; none if the prompt is not the concatenation of its parts.
    """
    before = tuple(prompt[:first]) if beginning is None else tuple(beginning)
    ends = [*accumulate(map(len, rendered), initial=first)]
    if list(prompt[first : ends[-1]]) != [token for tokens in rendered for token in tokens]:
        return ()
    spans = []
    for start, within, apart in zip(ends[:-1], rendered, isolated, strict=True):
        common = _common_suffix(within, apart)
        skipped = 0 if start == first == len(before) else recompute
        if common > skipped:
            text = (*before, *apart)
            filled = (*text, *[apart[-1]] * (-len(text) % page_tokens + 1))
            begin = start + len(within) - common + skipped
            spans.append(PassageSpan(begin, common - skipped, filled, len(text) - common + skipped))
    return tuple(spans)


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the longest common prefix, tokens."""
    return next(
        (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )


def _common_suffix(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the longest common suffix, tokens."""
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
        tokens: Its tokens.
        passages: Its passages, best first.
        numbering: Indices of the passages, in the order of the prompt.
    """

    tokens: tuple[int, ...]
    system: str
    user: str
    passages: tuple[RankedPassage, ...]
    numbering: tuple[int, ...]
    spans: tuple[PassageSpan, ...] = ()


RECOMPUTED_TOKENS: Final = 16
"""First tokens of a copied passage that are computed again."""


@dataclass(frozen=True, slots=True)
class PassageReuse:
    """How the KV of passages is copied, for collections that want it.

    Attributes:
        recompute: Tokens at the beginning of each passage but the first that are recomputed in the prompt, so that they
            attend to what precedes them; in addition to its number if that differs.
    """

    page_tokens: int
    recompute: int = RECOMPUTED_TOKENS


class PromptEncoder:
    """Renders prompts. Any thread.

    Args:
        reuse: How the KV of passages is copied; None if the model does not support it.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        reuse: PassageReuse | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._reuse = reuse
        self._system_tokens = len(tokenizer.encode_chat(SYSTEM, user_text([], "")))

    def encode(self, request: GenerationRequest, capacity: int, as_given: bool = False) -> Prompt:
        """Renders a prompt with as many passages, best first, as fit beside the answer and earlier turns.

        Args:
            capacity: Most tokens of prompt and answer together.
            as_given: Whether the prompt has the passages in the given order.

        Raises:
            RequestTooLarge: Not even one passage fits.
        """
        answer = request.sampling.max_tokens
        budget = capacity - answer
        texts = [ranked.passage.text for ranked in request.passages]
        lengths = [len(ids) for ids in self._rendered(texts)]
        room = budget - self._system_tokens - len(self._tokenizer.encode(request.question))
        history, history_tokens = self._history(request, budget)
        kept = max(1, passages_that_fit(lengths, room - history_tokens))
        while True:
            numbering = tuple(range(kept)) if as_given else _numbering(request, kept)
            ordered = [texts[index] for index in numbering]
            prompt = self._encoded(history, ordered, request.question)
            if len(prompt) <= budget:
                passages = request.passages[:kept]
                spans = self._spans(request, prompt, history, ordered)
                return Prompt(tuple(prompt), SYSTEM, user_text(ordered, request.question), passages, numbering, spans)
            if kept == 1 and not history:
                raise RequestTooLarge("tokens", len(prompt) + answer, capacity)
            if kept == 1:
                history, kept = (), max(1, passages_that_fit(lengths, room))
                continue
            # Lengths of parts need not add up exactly to the length of the whole.
            kept -= 1

    def _history(self, request: GenerationRequest, budget: int) -> tuple[tuple[str, ...], int]:
        """Returns the messages of the earlier turns that the prompt has, and about how many tokens they are."""
        turns = messages(request.turns)
        if not request.mode.needs_model or not turns or not self._renders_turns:
            return (), 0
        alone = len(self._tokenizer.encode_conversation(SYSTEM, [""]))
        lengths = [len(self._tokenizer.encode_conversation(SYSTEM, [*turn, ""])) - alone for turn in turns]
        first = left_out(lengths, history_budget(budget))
        return tuple(chain.from_iterable(turns[first:])), sum(lengths[first:])

    @cached_property
    def _renders_turns(self) -> bool:
        try:
            self._tokenizer.encode_conversation(SYSTEM, ["question", "answer", "question"])
        except ModelFolderInvalid:
            return False
        return True

    def _encoded(self, history: Sequence[str], passages: Sequence[str], question: str) -> list[int]:
        user = user_text(passages, question)
        if not history:
            return self._tokenizer.encode_chat(SYSTEM, user)
        return self._tokenizer.encode_conversation(SYSTEM, [*history, user])

    def _spans(
        self,
        request: GenerationRequest,
        prompt: Sequence[int],
        history: Sequence[str],
        texts: Sequence[str],
    ) -> tuple[PassageSpan, ...]:
        reuse = self._reuse
        if reuse is None or request.kv_reuse is not KvReuse.PASSAGE:
            return ()
        rendered = self._rendered(texts)
        first = _common_prefix(prompt, self._encoded(history, (), request.question))
        # Passages are computed alone without the turns of one conversation, so that others copy them, too.
        beginning = prompt[:first]
        if history:
            plain, bare = (self._encoded((), each, request.question) for each in (texts, ()))
            beginning = plain[: _common_prefix(plain, bare)]
        # The KV of a passage depends on the number before it, for which a format may ask. Elsewhere nothing becomes of
        # the numbers that a model writes, so that a passage is computed once for all positions.
        numbered = request.format is not None
        isolated = rendered if numbered else [ids for text in texts for ids in self._rendered([text])]
        return passage_spans(prompt, first, rendered, isolated, reuse.page_tokens, reuse.recompute, beginning)

    def _rendered(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(passage_text(number, text)) for number, text in enumerate(texts, 1)]


def _numbering(request: GenerationRequest, kept: int) -> tuple[int, ...]:
    """Returns the indices of the kept passages in the order of the prompt.

    They are sorted by document and position, so that equal passages of two questions make equal prefixes. Formatted
    answers keep the ranked order: a format may ask for numbers, which clients know by rank.
    """
    if request.format is not None:
        return tuple(range(kept))
    places = [ranked.passage for ranked in request.passages[:kept]]
    return tuple(
        sorted(range(kept), key=lambda index: (places[index].document_id, places[index].start, places[index].chunk_id))
    )
