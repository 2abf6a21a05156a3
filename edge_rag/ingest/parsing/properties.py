"""What a file says of itself: author and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from edge_rag.core.documents.metadata import MetadataValue

_PDF_TIME = re.compile(
    r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:(Z)|([+-])(\d\d)'?(\d\d)?)?",
)


def properties(
    title: str = "", author: str = "", created: datetime | None = None, modified: datetime | None = None
) -> dict[str, MetadataValue]:
    """Returns what is known, under the names that metadata has for it by convention."""
    given: dict[str, MetadataValue | None] = {
        "title": title.strip(),
        "author": author.strip(),
        "created": created,
        "modified": modified,
    }
    return {key: value for key, value in given.items() if value}


def iso_moment(text: str) -> datetime | None:
    """Reads a moment as XML and HTML write it, UTC where it names no zone; None where it is none."""
    try:
        return _in_utc(datetime.fromisoformat(text.strip()))
    except ValueError:
        return None


def pdf_moment(text: str) -> datetime | None:
    """Reads a moment as PDF writes it (ISO 32000-2, 7.9.4), UTC where it names no zone; None where it is none."""
    found = _PDF_TIME.match(text)
    if not found:
        return None
    year, month, day, hour, minute, second, _, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    try:
        fields = (int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0))
        return _in_utc(datetime(*fields, tzinfo=timezone(offset)))
    except (ValueError, OverflowError):
        return None


def _in_utc(moment: datetime) -> datetime | None:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None
