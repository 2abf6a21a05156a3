"""Names the numbers in which a sentence and one of a passage differ that otherwise says the same; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from edge_rag.generator.citations.claims import Claims, Measure, Quantity


@dataclass(frozen=True, slots=True)
class Difference:
    """Two numbers for the same thing.

    Attributes:
        claimed: The number in the sentence: ``64 days``.
        stated: The number in the passage: ``46 days``.
    """

    claimed: str
    stated: str


def difference(
    claim: Claims, claimed: Sequence[Measure], source: Claims, stated: Sequence[Measure]
) -> Difference | None:
    """Returns the numbers of two texts that differ; None if none do, or if it is not clear which belong together.

    A number that the source lacks belongs to the only number that the claim lacks and that has the same unit or,
    without a unit, stands between the same words. Every other number of the claim must be in the source.
    """
    lacking = [measure for measure in claimed if not _is_in(measure, source.loose)]
    if len(lacking) != 1:
        return None
    (one,) = lacking
    rivals = [other for other in stated if not _is_in(other, claim.loose) and _same_thing(one, other)]
    if len(rivals) != 1:
        return None
    (other,) = rivals
    if one.unit or one.after != other.after:
        return Difference(one.text, other.text)
    return Difference(one.counted, other.counted)


def _is_in(measure: Measure, loose: frozenset[Quantity]) -> bool:
    return any(Quantity(reading, measure.unit) in loose for reading in measure.readings)


def _same_thing(one: Measure, other: Measure) -> bool:
    if one.unit or other.unit:
        return one.unit == other.unit
    if one.after == other.after:
        return (bool(one.after) and one.after not in ENGLISH_FUNCTION_WORDS) or one.before == other.before
    return False
