"""Strict parsing of untrusted JSON: rejects everything that parsers could interpret differently."""

from __future__ import annotations

import json


def parse_object(content: bytes) -> dict[str, object]:
    """Parses a JSON object.

    Args:
        content: UTF-8 text.

    Raises:
        ValueError: It is not valid JSON, not an object, nested too deeply, has a repeated key, NaN or an infinity;
            names which.
    """
    document = _parse(content)
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")
    return document


def parse_list(content: bytes) -> list[object]:
    """Parses a JSON array.

    Args:
        content: UTF-8 text.
    """
    document = _parse(content)
    if not isinstance(document, list):
        raise ValueError("is not a JSON array")
    return document


def _parse(content: bytes) -> object:
    try:
        document: object = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return document


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key is given twice")
    return keys


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not a number")
