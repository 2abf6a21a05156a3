"""Bodies of type multipart/form-data (RFC 7578), read as they arrive; python-multipart parses them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from edge_rag.errors import InvalidRequest

FORM: Final = "multipart/form-data"

MAX_PARTS: Final = 16
"""Most parts of a form."""

MAX_FIELD_BYTES: Final = 4096
"""Most bytes of a field that is no file."""

MAX_FRAME_BYTES: Final = 64 << 10
"""Most bytes of a form beside its file."""

_MAX_HEADERS: Final = 8
_MAX_HEADER_BYTES: Final = 4096
_ESCAPES: Final = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
"""What browsers and OpenAI's SDKs write for characters that would end a file name."""


@dataclass(frozen=True, slots=True)
class FormPart:
    """The head of a part.

    Attributes:
        name: Name of the field.
        file_name: Name of the file; None for a field that is none.
        media_type: Its media type; empty if none was given.
    """

    name: str
    file_name: str | None
    media_type: str


class _PartEnd:
    """The end of a part."""


class MultipartForm:
    """A form that is being received."""

    def __init__(self, content_type: str, body: AsyncGenerator[bytes, None]) -> None:
        media_type, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if media_type != FORM.encode() or not boundary:
            raise InvalidRequest("content-type", f"must be {FORM} with a boundary")
        self._events: list[FormPart | bytes | _PartEnd] = []
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._parts = 0
        self._in_part = False
        self._ended = False
        self._body = body
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": lambda data, start, end: self._header_name.extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header_value.extend(data[start:end]),
                    "on_header_end": self._header,
                    "on_headers_finished": self._head,
                    "on_part_data": lambda data, start, end: self._events.append(data[start:end]),
                    "on_part_end": lambda: self._events.append(_PartEnd()),
                    "on_end": self._end,
                },
                max_header_count=_MAX_HEADERS,
                max_header_size=_MAX_HEADER_BYTES,
            )
        except FormParserError as error:
            raise _not_a_form(error) from error

    async def parts(self) -> AsyncGenerator[FormPart, None]:
        """Yields the head of each part; read its bytes with ``content`` or ``text`` before the next one."""
        async with aclosing(self._body):
            while (event := await self._next()) is not None:
                if isinstance(event, FormPart):
                    self._in_part = True
                    yield event
                    async for _ in self.content():
                        raise InvalidRequest(event.name[:256], "is not supported; leave it out")

    async def content(self) -> AsyncIterator[bytes]:
        """Yields the bytes of the part at hand."""
        while self._in_part:
            event = await self._next()
            if isinstance(event, bytes):
                yield event
            elif isinstance(event, _PartEnd):
                self._in_part = False
            else:
                raise _not_a_form("it ends within a part")

    async def text(self, name: str) -> str:
        """Returns the bytes of the part at hand as text."""
        found = bytearray()
        async for piece in self.content():
            found += piece
            if len(found) > MAX_FIELD_BYTES:
                raise InvalidRequest(name, f"has more than {MAX_FIELD_BYTES:,} bytes")
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(name, "is not UTF-8") from None

    async def _next(self) -> FormPart | bytes | _PartEnd | None:
        while not self._events:
            piece = await anext(self._body, None)
            if piece is None:
                if not self._ended:
                    raise _not_a_form("it ends before its last boundary")
                return None
            try:
                self._parser.write(piece)
            except FormParserError as error:
                raise _not_a_form(error) from error
        return self._events.pop(0)

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _not_a_form(f"it has more than {MAX_PARTS} parts")
        self._headers = {}

    def _header(self) -> None:
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _head(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if kind != b"form-data" or b"name" not in options:
            raise _not_a_form("a part has no name")
        given = options.get(b"filename")
        media_type = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        name = None if given is None else _text(given, "file")
        self._events.append(FormPart(_text(options[b"name"], "body"), name, _text(media_type, "file")))

    def _end(self) -> None:
        self._ended = True


def _text(value: bytes, field: str) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(field, "has a name that is not UTF-8") from None
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    return text


def _not_a_form(problem: object) -> InvalidRequest:
    return InvalidRequest("body", f"is not a form: {str(problem)[:256]}")
