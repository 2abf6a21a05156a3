"""Known-item search: somebody knows a package and describes it in one line; pure.

A package's synopsis is the question and its long description, without the synopsis, the document to be found.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from scripts.bench.retrieval.descriptions import Description

LEAST_WORDS: Final = 8
"""A description of fewer words is left out: nearly all of these only say which kind of package it is."""

_WORD = re.compile(r"[^\W_]+")
_PARTS = 10


class Part(Enum):
    """What a description may be used for; all packages of one source are in the same part."""

    CHOOSING = "choosing"
    """Questions that settings are chosen with: a tenth."""
    REPORTING = "reporting"
    """Questions that are only reported: a tenth."""
    TRAINING = "training"
    """Text that models may be trained on: the rest."""


@dataclass(frozen=True, slots=True)
class KnownItem:
    """A question and the one document that it is about."""

    question: str
    document: str


def part_of(description: Description) -> Part:
    """The part of a description, by a hash of its source package's name."""
    number = hashlib.sha256(description.source.encode()).digest()[0] % _PARTS
    return {0: Part.CHOOSING, 1: Part.REPORTING}.get(number, Part.TRAINING)


def findable(descriptions: Sequence[Description]) -> list[Description]:
    """Those that can be told from the others: at least ``LEAST_WORDS`` words, and of equal texts the first."""
    distinct: dict[str, Description] = {}
    for description in descriptions:
        if len(_WORD.findall(description.text)) >= LEAST_WORDS:
            distinct.setdefault(" ".join(description.text.split()), description)
    return list(distinct.values())


def sample_documents(descriptions: Sequence[Description], count: int, seed: int) -> dict[str, Description]:
    """A random sample of findable descriptions, all if there are fewer, by document name and in order of name."""
    some = random.Random(seed).sample(descriptions, min(count, len(descriptions)))
    return {f"{each.package}.txt": each for each in sorted(some, key=lambda each: each.package)}


def sample_items(documents: dict[str, Description], part: Part, count: int, seed: int) -> list[KnownItem]:
    """Random questions of one part, fewer if there are not as many.

    A synopsis that several of the documents have is no question: which one it means cannot be known.
    """
    times = Counter(_folded(each.synopsis) for each in documents.values())
    items = [
        KnownItem(each.synopsis, name)
        for name, each in documents.items()
        if part_of(each) is part and times[_folded(each.synopsis)] == 1 and _WORD.search(each.synopsis)
    ]
    return random.Random(seed).sample(items, min(count, len(items)))


def _folded(synopsis: str) -> str:
    return " ".join(_WORD.findall(synopsis.lower()))
