"""E-mail parser: a message or a mailbox with its attachments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import HeaderParseError, MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.policy import Compat32
from email.utils import parsedate_to_datetime

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import BrokenDocument, DocumentRejected
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, properties
from edge_rag.ingest.parsing.document_format import AttachmentReader, Format
from edge_rag.ingest.parsing.text.html import add_html
from edge_rag.ingest.parsing.text.plain import add_plain, decode_text

_SHOWN_FIELDS = ("From", "To", "Cc", "Date")
_MESSAGE_START = re.compile(rb"^From \S+ +\S.{10,60}$", re.MULTILINE)
_ESCAPED_START = re.compile(rb"^>(>*From )", re.MULTILINE)
_MAX_PARTS = 2_000
_MAX_DEPTH = 50
_LONGEST_FIELD = 2_000


class _ShortHeaders(Compat32):
    """Cuts header fields when they are read: the parser takes quadratic time for parameters of a long field."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        has_parameters = name.lower().startswith("content-")
        return name, value[: _LONGEST_FIELD if has_parameters else 4 * _LONGEST_FIELD]


_POLICY = _ShortHeaders()


def parse_mail(content: bytes, read_attachment: AttachmentReader) -> ParsedDocument:
    """Reads a message: subject as heading, sender, recipients and date, the text, and each attachment under a heading.

    Of alternative texts the plain one is read. Attachments that cannot be read are listed with the reason.

    Args:
        content: The bytes.
    """
    builder = DocumentBuilder()
    message = message_from_bytes(content, policy=_POLICY)
    _add_message(builder, message, read_attachment, 1)
    subject = _field(message, "Subject")
    return builder.build(subject, metadata=properties(subject, _field(message, "From"), _date(message)))


def parse_mailbox(content: bytes, read_attachment: AttachmentReader) -> ParsedDocument:
    """Reads a mailbox: its messages in order, each like ``parse_mail``."""
    builder = DocumentBuilder()
    for raw in _messages(content):
        _add_message(builder, message_from_bytes(raw, policy=_POLICY), read_attachment, 1)
    return builder.build()


def _messages(content: bytes) -> Iterator[bytes]:
    starts = [found.start() for found in _MESSAGE_START.finditer(content)] or [0]
    for start, end in zip(starts, [*starts[1:], len(content)], strict=True):
        message = content[start:end]
        if message.startswith(b"From "):
            message = message.partition(b"\n")[2]
        yield _ESCAPED_START.sub(rb"\1", message)


def _add_message(builder: DocumentBuilder, message: Message, read_attachment: AttachmentReader, level: int) -> None:
    builder.add(BlockKind.HEADING, _field(message, "Subject") or "(no subject)", level)
    for name in _SHOWN_FIELDS:
        value = _field(message, name)
        builder.add(BlockKind.LIST_ITEM, f"{name}: {value}" if value else "")
    for part in _readable_parts(message):
        if _is_attachment(part):
            _add_attachment(builder, part, read_attachment, level + 1)
        elif part.get_content_type() == "text/html":
            add_html(builder, _text(part))
        else:
            add_plain(builder, _text(part))


def _readable_parts(message: Message) -> list[Message]:
    """Returns the parts to read in order: the plain text of alternatives, or else the HTML, and the attachments."""
    readable: list[Message] = []
    pending = [(message, 0)]
    while pending:
        part, depth = pending.pop()
        if depth > _MAX_DEPTH or len(readable) > _MAX_PARTS:
            raise BrokenDocument(f"its parts are nested more than {_MAX_DEPTH} deep, or more than {_MAX_PARTS:,}")
        payload = _inner(part)
        if not payload or part.get_content_type() == "message/rfc822":
            if _is_attachment(part) or part.get_content_maintype() == "text":
                readable.append(part)
            continue
        inner = payload
        if part.get_content_type() == "multipart/alternative":
            texts = [sub for sub in inner if sub.get_content_type() == "text/plain" and _text(sub).strip()]
            inner = texts[:1] or inner[-1:]
        pending.extend((sub, depth + 1) for sub in reversed(inner))
    return readable


def _is_attachment(part: Message) -> bool:
    named = _file_name(part) != ""
    is_text = part.get_content_type() in ("text/plain", "text/html")
    return part.get_content_disposition() == "attachment" or not is_text or named


def _add_attachment(builder: DocumentBuilder, part: Message, read_attachment: AttachmentReader, level: int) -> None:
    for inner in _inner(part)[:1]:
        name = _file_name(part) or f"{_field(inner, 'Subject') or 'message'}.eml"
        _add_read(builder, name, "message/rfc822", inner.as_bytes(), read_attachment, level)
        return
    name = _file_name(part) or "unnamed"
    decoded = part.get_payload(decode=True)
    content = decoded if isinstance(decoded, bytes) else b""
    _add_read(builder, name, part.get_content_type(), content, read_attachment, level)


def _add_read(
    builder: DocumentBuilder, name: str, media_type: str, content: bytes, read_attachment: AttachmentReader, level: int
) -> None:
    try:
        attached = read_attachment(name, media_type, content)
    except DocumentRejected as error:
        builder.add(BlockKind.PARAGRAPH, f"Attachment, not read: {name} ({error})")
        return
    builder.add(BlockKind.HEADING, f"Attachment: {name}", level)
    builder.append(attached, level)


def _text(part: Message) -> str:
    decoded = part.get_payload(decode=True)
    return decode_text(decoded, _charset(part)) if isinstance(decoded, bytes) and decoded else ""


def _inner(part: Message) -> list[Message]:
    payload = part.get_payload() if part.is_multipart() else []
    return [inner for inner in payload if isinstance(inner, Message)] if isinstance(payload, list) else []


def _file_name(part: Message) -> str:
    try:
        return _decoded(part.get_filename() or "")[:_LONGEST_FIELD]
    except ValueError:  # an encoding whose name holds a NUL
        return "unnamed"


def _charset(part: Message) -> str | None:
    try:
        return part.get_content_charset()
    except ValueError:  # as above
        return None


def _field(message: Message, name: str) -> str:
    return _decoded(str(message.get(name, "")))[:_LONGEST_FIELD]


def _decoded(value: str) -> str:
    try:
        return str(make_header(decode_header(value[: 4 * _LONGEST_FIELD])))
    except (HeaderParseError, MessageError, ValueError, LookupError, TypeError):
        return value


def _date(message: Message) -> datetime | None:
    try:
        sent = parsedate_to_datetime(str(message.get("Date", "")))
        return sent.replace(tzinfo=UTC) if sent.tzinfo is None else sent.astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


_MAIL_HEADER = re.compile(rb"([A-Za-z][A-Za-z0-9-]{1,40}):[ \t]*\S?")
_MAIL_SIGNS = frozenset((b"received", b"message-id", b"mime-version", b"return-path", b"delivered-to", b"date"))
_MBOX_OPENING = re.compile(rb"From \S+ +\S.{10,60}\r?\n[A-Za-z-]+: ")
_SNIFFED_BYTES = 4096


def _is_mbox(content: bytes) -> bool:
    return _MBOX_OPENING.match(content) is not None


def _is_mail(content: bytes) -> bool:
    """Whether it begins with a message header: a sender and two more fields that only mail has."""
    fields: set[bytes] = set()
    for line in content[:_SNIFFED_BYTES].splitlines():
        if not line:
            break
        header = _MAIL_HEADER.match(line)
        if header:
            fields.add(header.group(1).lower())
        elif not line.startswith((b" ", b"\t")):
            return False
    return b"from" in fields and len(fields & _MAIL_SIGNS) >= 2


MAIL = Format(
    name="MAIL",
    title="E-mail message",
    media_type="message/rfc822",
    suffixes=(".eml",),
    reads="subject, sender, recipients, date, text, and attachments of any format in this table",
    parse=lambda content, context: parse_mail(content, context.read_attachment),
    sniff=_is_mail,
    is_text=True,
)
MAILBOX = Format(
    name="MAILBOX",
    title="Mailbox",
    media_type="application/mbox",
    suffixes=(".mbox",),
    reads="each message as an e-mail message",
    parse=lambda content, context: parse_mailbox(content, context.read_attachment),
    sniff=_is_mbox,
    is_text=True,
)
