"""A question with its passages as the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.kv_reuse import KvReuse
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import AnswerMode
from edge_rag.engine.kv_cache.page_copy import PassageSpan
from edge_rag.errors import NeverFits
from edge_rag.generator.prompt.passage_order import PassageArranger
from edge_rag.generator.prompt.passage_spans import passage_spans
from edge_rag.generator.prompt.template import PromptSettings, passage_text, passages_that_fit, user_text
from edge_rag.generator.prompt.tokenizer import ChatTokenizer


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
            NeverFits: Not even one passage fits.
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
                raise NeverFits("tokens", len(prompt) + request.sampling.max_tokens, capacity)
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
