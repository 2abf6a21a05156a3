"""Both clients behind one interface, so that one contract suite covers them."""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

from edge_rag.client import AsyncClient, AsyncConversation, Client

Connect = Callable[..., Client]
"""Opens a client; takes what ``Client`` takes."""


class BlockingAdapter:
    """An ``AsyncClient``, or a conversation of it, on an event loop of another thread, called like a blocking one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AsyncClient | AsyncConversation) -> None:
        self._loop = loop
        self._client = client

    def __enter__(self) -> Self:
        self.result(cast(AsyncClient, self._client).__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.result(cast(AsyncClient, self._client).__aexit__(kind, error, at))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not inspect.ismethod(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            made = found(*arguments, **options)
            if isinstance(made, AsyncConversation):
                return BlockingAdapter(self._loop, made)
            if isinstance(made, AsyncGenerator):
                return self._iterate(made)
            return self.result(made) if inspect.iscoroutine(made) else made

        return call

    def result(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _iterate(self, events: AsyncGenerator[Any, None]) -> Iterator[Any]:
        async def following() -> tuple[Any, ...]:
            return (await anext(events),)

        try:
            while True:
                try:
                    yield from self.result(following())
                except StopAsyncIteration:
                    return
        finally:
            self.result(events.aclose())


@contextmanager
def connecting(asynchronous: bool) -> Iterator[Connect]:
    """Provides the function that opens clients of one kind."""
    if not asynchronous:
        yield Client
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="clients")
    thread.start()
    try:
        yield lambda *arguments, **options: cast(Client, BlockingAdapter(loop, AsyncClient(*arguments, **options)))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
