"""How many examples property tests draw."""

from hypothesis import settings

_EVERYDAY = 20


def examples(thorough: int) -> int:
    """Returns this number in ``scripts/test --all`` (profile ``thorough``), at most 20 in the everyday run."""
    return min(thorough, _EVERYDAY) if settings().max_examples == _EVERYDAY else thorough
