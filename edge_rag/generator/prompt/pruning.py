"""Which sentences of passages stand in a prompt; pure.

A prompt is read token by token before the first word of an answer, and most sentences of its passages carry nothing for
the question. The reranker has weighed the evidence of each (``reranker/evidence.py``), so those far below the best one
are left out, as Provence (Chirkova et al. 2025, arXiv 2501.16214) and its followers do with a model of their own.

Kept with a sentence is what makes it readable: the sentence before it if it begins with a pronoun or a connective, the
title above it, and the first row of its table. ``[…]`` stands where text is left out. Citations are checked against the
whole passages, so that their ranges are ranges of the stored text whatever stood in the prompt.

Text that differs from question to question has no stored KV, so passages whose KV other prompts reuse are not pruned;
``template.py`` decides which.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.analysis.languages import language_of
from edge_rag.core.passage import RankedPassage, Sentence
from edge_rag.generator.quoting.words import refers_back

MARK: Final = "[…]"
"""What stands where text is left out."""

MARGIN: Final = 3.5
"""How far below the best sentence of all passages the evidence of a sentence may be, standard deviations."""

LEAST_SENTENCES: Final = 3
"""Sentences with the most evidence that are kept whatever it is."""

SHORT_CHARACTERS: Final = 240
"""Characters up to which a passage is kept whole."""

MOST_KEPT: Final = 0.8
"""Share of a passage from which on it is kept whole: a gap costs tokens, too, and breaks the reading."""

_TITLE_CHARACTERS: Final = 100
_CELL_END: Final = " | "
_SENTENCE_END: Final = re.compile(r"[.!?:;,…。！？：；，।॥؟۔]\W*$")


@dataclass(frozen=True, slots=True)
class PrunedText:
    """What of a passage stands in the prompt.

    Attributes:
        ranges: Characters of the passage's text that are kept, (start, end) in order, with a gap between two.
        text: They, with ``MARK`` for each gap; the passage's text itself if it is whole.
    """

    ranges: tuple[tuple[int, int], ...]
    text: str


def pruned(passages: Sequence[RankedPassage], whole: Collection[int] = ()) -> tuple[PrunedText, ...]:
    """Returns what of each passage stands in the prompt, in their order.

    Nothing is left out of passages whose sentences have no evidence, as those that were not reranked.
    """
    values = sorted((sentence.evidence for each in passages for sentence in each.sentences), reverse=True)
    if not values or values[0] == values[-1]:
        return tuple(_whole(each) for each in passages)
    least = min(values[0] - MARGIN, values[min(LEAST_SENTENCES, len(values)) - 1])
    return tuple(
        _whole(each) if index in whole else _pruned(each.passage.text, each.sentences, least)
        for index, each in enumerate(passages)
    )


def _whole(ranked: RankedPassage) -> PrunedText:
    text = ranked.passage.text
    return PrunedText(((0, len(text)),), text)


def _pruned(text: str, sentences: Sequence[Sentence], least: float) -> PrunedText:
    everything = PrunedText(((0, len(text)),), text)
    if len(text) <= SHORT_CHARACTERS or not sentences:
        return everything
    best = max(range(len(sentences)), key=lambda number: sentences[number].evidence)
    language = language_of(text)
    kept: set[int] = set()
    for number in {best} | {number for number, each in enumerate(sentences) if each.evidence >= least}:
        kept |= _with_context(text, sentences, number, language)
    numbers = sorted(kept)
    if sum(sentences[number].end - sentences[number].start for number in numbers) > MOST_KEPT * len(text):
        return everything
    ranges: list[tuple[int, int]] = []
    for place, number in enumerate(numbers):
        start, end = sentences[number].start, sentences[number].end
        if place and numbers[place - 1] == number - 1:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    shown = f" {MARK} ".join(text[start:end] for start, end in ranges)
    before = f"{MARK} " if numbers[0] > 0 else ""
    after = f" {MARK}" if numbers[-1] < len(sentences) - 1 else ""
    return PrunedText(tuple(ranges), f"{before}{shown}{after}")


def _with_context(text: str, sentences: Sequence[Sentence], number: int, language: str) -> set[int]:
    """Returns a sentence with those that make it readable: the one before, the title above, the first row."""
    spans = {number}
    if number and refers_back(text[sentences[number].start : sentences[number].end], language):
        spans.add(number - 1)
    for before in range(number - 1, -1, -1):
        if _is_title(text, sentences[before]):
            spans.add(before)
            break
    first = number
    while first and _is_row(text, sentences[first]) and _is_row(text, sentences[first - 1]):
        first -= 1
    return spans | {first}


def _is_row(text: str, sentence: Sentence) -> bool:
    start = text.rfind("\n", 0, sentence.start) + 1
    end = text.find("\n", sentence.end)
    return _CELL_END in text[start : end if end >= 0 else len(text)]


def _is_title(text: str, sentence: Sentence) -> bool:
    """Whether a sentence is a short line of its own, with a blank line behind it and without a mark at its end."""
    line = text[sentence.start : sentence.end]
    return (
        len(line) <= _TITLE_CHARACTERS
        and text[: sentence.start].endswith("\n\n" if sentence.start else "")
        and text.startswith("\n\n", sentence.end)
        and _CELL_END not in line
        and _SENTENCE_END.search(line) is None
    )
