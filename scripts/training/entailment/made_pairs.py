"""Pairs made of sentences: each said in another way, and altered; pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from scripts.training.entailment.alterations import Others, altered, same
from scripts.training.entailment.pairs import Pair, Verdict
from scripts.training.entailment.sources import adds_nothing

_CONTEXT_SHARE: Final = 0.3
_HEADING_SHARE: Final = 0.15
_LONGEST: Final = 420
"""Most characters of a premise."""


def split_pairs(sentences: Sequence[tuple[str, str, str]], seed: int) -> Iterator[Pair]:
    """Yields pairs of sentences that were split in two.

    The whole entails its parts, as they are and said in another way, but not altered ones; a part says nothing of what
    only the other says.

    Args:
        sentences: Each with the two that it was split into.
        seed: Chooses everything.
    """
    chance = random.Random(seed)
    others = Others([part for _, *parts in sentences for part in parts])
    context = Context([part for _, *parts in sentences for part in parts])
    for whole, *parts in sentences:
        kept = [part for part in parts if adds_nothing(whole, part)]
        if not kept:
            continue
        part = chance.choice(kept)
        # Where the whole is the premise, wholes and parts have as many alterations as not.
        premise = whole if chance.random() < 0.5 else part
        said = same(part, chance) if chance.random() < 0.6 else part
        yield Pair(context.around(premise, chance), said, Verdict.ENTAILMENT)
        for text, verdict in altered(part, chance, others, 1 if chance.random() < 0.5 else 2):
            yield Pair(context.around(premise, chance), text, verdict)
        if len(kept) == 2 and chance.random() < 0.4:
            one, other = kept if chance.random() < 0.5 else kept[::-1]
            yield Pair(one, whole if chance.random() < 0.3 else other, Verdict.NOT_ENTAILED)


def text_pairs(sentences: Sequence[str], seed: int) -> Iterator[Pair]:
    """Yields each sentence said in another way, and altered."""
    chance = random.Random(seed)
    others, context = Others(sentences), Context(sentences)
    for sentence in sentences:
        said = same(sentence, chance) if chance.random() < 0.7 else sentence
        yield Pair(context.around(sentence, chance), said, Verdict.ENTAILMENT)
        for text, verdict in altered(sentence, chance, others, 1):
            yield Pair(context.around(sentence, chance), text, verdict)
        if chance.random() < 0.1:
            yield Pair(context.around(sentence, chance), chance.choice(sentences), Verdict.NEUTRAL)


class Context:
    """Puts other sentences or a heading before or after one, as in a passage.

    Args:
        sentences: What is put there.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        self._sentences = sentences

    def around(self, sentence: str, chance: random.Random) -> str:
        """Returns the sentence, sometimes among others."""
        drawn = chance.random()
        other = chance.choice(self._sentences)
        if drawn < _HEADING_SHARE:
            return f"{' '.join(other.split()[: chance.randint(1, 4)]).strip(',.;:')}. {sentence}"
        if drawn < _HEADING_SHARE + _CONTEXT_SHARE and len(sentence) + len(other) < _LONGEST:
            return f"{other} {sentence}" if chance.random() < 0.5 else f"{sentence} {other}"
        return sentence
