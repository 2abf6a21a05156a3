"""Metadata on the command line: ``key=value``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime
from typing import Any

import click

from edge_rag.core.documents.metadata import MetadataValue, checked_metadata
from edge_rag.errors import InvalidRequest

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d.*)?")
_FLAGS = {"true": True, "false": False}


def metadata_of(pairs: Iterable[str], option: str = "--meta") -> dict[str, MetadataValue]:
    """Reads ``key=value`` pairs; a key given several times has all its values as tags.

    A value is a number, ``true`` or ``false``, or a date as ISO 8601 where it looks like one, and a text otherwise or
    in double quotes.

    Raises:
        click.BadParameter: A pair has no ``=``, or a key or value is unusable; names it.
    """
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
        texts.setdefault(key.strip(), []).append(text.strip())
    values = {
        key: typed_value(several[0]) if len(several) == 1 else [_unquoted(text) for text in several]
        for key, several in texts.items()
    }
    try:
        return checked_metadata(values)
    except InvalidRequest as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def typed_value(text: str) -> str | int | float | bool | date:
    """Reads a value as ``metadata_of`` says."""
    if text in _FLAGS:
        return _FLAGS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if _MOMENT.fullmatch(text):
        with suppress(ValueError):
            return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    return _unquoted(text)


def shown_value(value: Any) -> str:
    """Returns a value of ``metadata_object`` for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text
