"""Pages of lists in the shape of OpenAI's API: a cursor is the id of an entry, and pages go both ways from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from edge_rag.core.limits.request_fields import bounded_int
from edge_rag.errors import InvalidRequest

MAX_LIMIT: Final = 100
"""Most entries of a page."""

_DEFAULT_LIMIT: Final = 20
_ORDERS: Final = ("desc", "asc")
_PARAMETERS: Final = frozenset({"after", "before", "limit", "order"})

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of a list a client wants.

    Attributes:
        after: Id of the entry before the page; None for the beginning of the list.
        before: Id of the entry behind the page; None unless it is asked for. With ``after`` the page begins there, and
            ends before this one if it comes to it: so SDKs go on after a page that was asked for with ``before``.
        limit: Most entries, 1 to 100.
        descending: Whether the newest entries come first.
    """

    after: str | None
    before: str | None
    limit: int
    descending: bool


def parse_page(
    query: Mapping[str, str], others: frozenset[str] = frozenset(), default_limit: int = _DEFAULT_LIMIT
) -> PageRequest:
    """Returns the page that a query string asks for."""
    for name in query:
        if name not in _PARAMETERS and name not in others:
            raise InvalidRequest(name[:256], "is not supported; leave it out")
    order, limit = query.get("order", "desc"), query.get("limit", str(default_limit))
    if order not in _ORDERS:
        raise InvalidRequest("order", f"must be one of {', '.join(_ORDERS)}")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 9):
        raise InvalidRequest("limit", f"must be 1 to {MAX_LIMIT}")
    most = bounded_int("limit", int(limit), 1, MAX_LIMIT)
    return PageRequest(query.get("after") or None, query.get("before") or None, most, order == "desc")


async def read_page(
    request: PageRequest, read: Callable[[str | None, int, bool], Awaitable[Sequence[_T]]], id_of: Callable[[_T], str]
) -> tuple[list[_T], bool]:
    """Returns a page, and whether there are more entries in its direction.

    Args:
        read: Returns up to so many entries that follow a cursor (None for the beginning), the newest first if so.
    """
    backwards = request.before is not None and request.after is None
    cursor = request.before if backwards else request.after
    found = list(await read(cursor, request.limit + 1, request.descending != backwards))
    page, has_more = found[: request.limit], len(found) > request.limit
    if backwards:
        return page[::-1], has_more
    ends = [index for index, entry in enumerate(found) if id_of(entry) == request.before]
    return (page[: ends[0]], False) if ends else (page, has_more)


def following(entries: Sequence[_T], cursor: str | None, limit: int, id_of: Callable[[_T], str]) -> Sequence[_T]:
    """Returns up to ``limit`` entries of a whole list behind the one with an id; from the beginning for None."""
    if cursor is None:
        return entries[:limit]
    for index, entry in enumerate(entries):
        if id_of(entry) == cursor:
            return entries[index + 1 : index + 1 + limit]
    raise InvalidRequest("after", f"no entry of this list has the id {cursor[:256]!r}")


def page_object(entries: Sequence[Mapping[str, Any]], has_more: bool) -> dict[str, Any]:
    first, last = (entries[0]["id"], entries[-1]["id"]) if entries else (None, None)
    return {"object": "list", "data": list(entries), "first_id": first, "last_id": last, "has_more": has_more}
