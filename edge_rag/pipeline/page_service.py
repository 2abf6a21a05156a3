"""Pages of documents as a service: one is drawn at a time, and callers take turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, cast

from edge_rag.core.query import RequestContext
from edge_rag.ingest.page_images import MarkedPage, PageImages, PagePicture
from edge_rag.pipeline.stage import Stage, Timed

_T = TypeVar("_T")

WAITING: Final = 16
"""Requests that may wait; one caller may fill as much as ``may_hold_more`` says."""


class PageService:
    """Draws pages of documents and finds ranges of their text. Used from one event loop.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, pages: PageImages, waiting: int = WAITING, clock: Callable[[], float] = time.monotonic) -> None:
        self._pages = pages
        self._stage: Stage[Callable[[], Any], Any] = Stage(
            "pages", lambda calls: [call() for call in calls], waiting, 1, clock
        )

    async def picture(
        self,
        collection: str,
        document: str,
        page: int,
        width: int,
        marked: tuple[int, int] | None,
        caller: RequestContext,
    ) -> Timed[PagePicture]:
        return await self._run(partial(self._pages.picture, collection, document, page, width, marked), caller)

    async def boxes(
        self, collection: str, document: str, page: int, start: int, end: int, caller: RequestContext
    ) -> Timed[MarkedPage]:
        return await self._run(partial(self._pages.boxes, collection, document, page, start, end), caller)

    def close(self) -> None:
        self._stage.close()

    async def _run(self, work: Callable[[], _T], caller: RequestContext) -> Timed[_T]:
        return cast(Timed[_T], await asyncio.wrap_future(self._stage.submit(work, caller.deadline, caller)))
