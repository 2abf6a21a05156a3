"""Bytes to text, whatever the encoding; bytes that are no text are refused."""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

from edge_rag.errors import UnsupportedFormat

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f�￾￿]")
_MOST_NOT_TEXT = 0.002
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
_FEW_HIGH_BYTES = 16
_FEW_HIGH_SHARE = 0.4


def decode_text(content: bytes, declared: str | None = None) -> str:
    """Decodes text of unknown encoding.

    A byte order mark decides, then UTF-8 if the bytes are valid as that, then the encoding the document declares, then
    Windows-1252 if there are too few bytes outside ASCII to guess from, then charset-normalizer's best guess.

    Args:
        content: The bytes.
        declared: Name of the encoding that the document itself declares, if it does.

    Raises:
        UnsupportedFormat: No encoding makes text of the bytes.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _require(_decode(content, encoding))
    for candidate in ("utf-8", declared):
        text = _decode(content, candidate) if candidate else None
        if text is not None and _is_text(text):
            return text
    return _require(_decode_western(content) or _decode_guessed(content))


def _decode_western(content: bytes) -> str | None:
    """Text in Western Europe's encoding if the bytes outside ASCII are too few to tell one encoding from another."""
    high = sum(map(len, _HIGH_BYTES.findall(content)))
    text = _decode(content, "cp1252") if high < _FEW_HIGH_BYTES and high < _FEW_HIGH_SHARE * len(content) else None
    return text if text is not None and b"\x1b" not in content and _is_text(text) else None


def _decode_guessed(content: bytes) -> str | None:
    best = from_bytes(content).best()
    return None if best is None else str(best)


def _decode(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except (ValueError, LookupError):  # ValueError also for a name with a NUL
        return None


def _require(text: str | None) -> str:
    if text is None or not _is_text(text):
        raise UnsupportedFormat("its content is not text, and it is of no other format that is read")
    return text


def _is_text(text: str) -> bool:
    """Whether control characters are no more frequent than a stray one now and then, and none is a NUL."""
    return "\x00" not in text and len(_NOT_TEXT.findall(text)) <= max(1.0, _MOST_NOT_TEXT * len(text))
