"""JSON from files that somebody else wrote: read so that nobody else could read it differently."""

from __future__ import annotations

import json


def parse_object(content: bytes) -> dict[str, object]:
    """Reads a JSON object.

    Args:
        content: UTF-8 text.

    Raises:
        ValueError: It is not valid JSON, not an object, nested too deeply, gives a key twice, or has a number that is
            not one; says which.
    """
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")
    return document


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key is given twice")
    return keys


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not a number")
