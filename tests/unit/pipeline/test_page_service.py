"""Pages are drawn one at a time, callers take turns, and nobody fills the queue."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from edge_rag.core.query import RequestContext
from edge_rag.errors import PageUnavailable
from edge_rag.ingest.page_images import PageImages
from edge_rag.pipeline.page_service import PageService


class Drawing:
    """Draws nothing, when it is let; notes which document was drawn and how many at once."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.most = 0
        self.begun = threading.Event()
        self.unblocked = threading.Event()
        self._at_once = 0

    def picture(self, collection: str, document: str, page: int, width: int, marked: object) -> Any:
        self._at_once += 1
        self.most = max(self.most, self._at_once)
        self.begun.set()
        assert self.unblocked.wait(30)
        self._at_once -= 1
        self.drawn.append(document)
        if document == "broken":
            raise PageUnavailable("it is broken")
        return document


@pytest.fixture
def drawing() -> Drawing:
    return Drawing()


@pytest.fixture
def service(drawing: Drawing) -> Iterator[PageService]:
    made = PageService(cast(PageImages, drawing), waiting=8)
    yield made
    drawing.unblocked.set()
    made.close()


def ask(service: PageService, client: str, document: str) -> asyncio.Task[Any]:
    return asyncio.ensure_future(service.picture("c", document, 1, 10, None, RequestContext(client=client)))


async def test_one_is_drawn_at_a_time_and_a_newcomer_is_next(service: PageService, drawing: Drawing) -> None:
    flood = [ask(service, "ada", f"ada {number}") for number in range(5)]
    await asyncio.to_thread(drawing.begun.wait, 30)
    late = ask(service, "bo", "bo")
    await asyncio.sleep(0)
    drawing.unblocked.set()
    await asyncio.gather(*flood, late)
    assert drawing.most == 1
    assert drawing.drawn[:2] == ["ada 0", "bo"]
    assert sorted(drawing.drawn) == sorted([*(f"ada {number}" for number in range(5)), "bo"])
