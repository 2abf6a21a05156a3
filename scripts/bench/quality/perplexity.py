"""Next-token perplexity of right answers, given the prompts they belong to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.engine.ports import ModelRunner
from edge_rag.generator.prompt.template import PromptSettings, user_text
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.decoder.model_input import PackedStep
from scripts.bench.quality.questions import Case

Losses = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and its right answer.

    Attributes:
        tokens: int64 [n].
        answer: Index of the answer's first token.
    """

    tokens: NDArray[np.int64]
    answer: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """One perplexity over another on the same tokens, with the standard error over texts."""

    value: float
    error: float


def right_answers(cases: Iterable[Case], tokenizer: ChatTokenizer, runner: ModelRunner) -> list[Text]:
    """Lays out what a model that quotes should say, as the generator lays it out.

    Passages that do not fit are dropped from the end, as the generator does; questions whose answer is in none are left
    out.
    """
    texts = []
    for case in cases:
        if case.said is None:
            continue
        answer = [*tokenizer.encode(f" {case.said} [{case.passage}]"), min(runner.end_tokens)]
        for kept in range(len(case.passages), case.passage - 1, -1):
            shown = [ranked.passage.text for ranked in case.passages[:kept]]
            prompt = tokenizer.encode_chat(PromptSettings().system, user_text(shown, case.question))
            if len(prompt) + len(answer) <= runner.max_context:
                texts.append(Text(np.array([*prompt, *answer], np.int64), len(prompt)))
                break
    return texts


def answer_losses(runner: ModelRunner, text: Text) -> Losses:
    """Returns float64 [answer tokens], what each costs given all that precedes it, nats."""
    count = text.tokens.size - 1
    order = np.arange(count, dtype=np.int32)
    table = np.arange(-(-count // runner.page_tokens), dtype=np.int32)[None]
    wanted = np.arange(text.answer - 1, count)
    step = PackedStep(text.tokens[:-1], order, order, np.array([0, count], np.int32), table, wanted)
    logits = runner.run(step).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(wanted.size), text.tokens[text.answer :]]
    losses: Losses = np.log(np.exp(logits).sum(axis=1)) - chosen
    return losses


def perplexity(losses: Sequence[Losses]) -> float:
    """Returns the perplexity of all texts' tokens together."""
    return math.exp(np.concatenate(losses).mean())


def ratio(losses: Sequence[Losses], reference: Sequence[Losses]) -> Ratio:
    """Compares two models on the same texts."""
    tokens = np.array([row.size for row in reference])
    more = np.array([row.sum() - other.sum() for row, other in zip(losses, reference, strict=True)])
    mean = more.sum() / tokens.sum()
    spread = math.sqrt(float(((more - mean * tokens) ** 2).sum())) / int(tokens.sum())
    return Ratio(math.exp(mean), math.exp(mean) * spread)
