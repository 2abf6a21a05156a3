"""Brings texts to another machine's encoders and what they computed back: whatever comes of it, it ends in time.

Which models a machine has is asked before the first text is sent to it, and one that has others gets none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from edge_rag.core.asker import Asker
from edge_rag.core.offload import OffloadUse
from edge_rag.errors import EdgeRagError, RemoteFailed, RemoteUnfit
from edge_rag.offload.context import Dispatch
from edge_rag.offload.encoding.encoding_desk import Encoders, EncodingDesk, EncodingRemote
from edge_rag.offload.encoding.routing import Work
from edge_rag.offload.encoding_announcing import EncodingAnnouncer

_Out = TypeVar("_Out")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Arrived(Generic[_Out]):
    """What a machine computed, checked.

    Attributes:
        value: What it is.
        queue_s: How long it waited there, as stated, seconds.
        compute_s: How long it was worked on there, as stated, seconds.
    """

    value: _Out
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Parcel(Generic[_Out]):
    """What is brought to a machine.

    Attributes:
        work: What is to be done.
        asker: For whom.
        texts: How many texts it is, at least 1.
        seal: Returns exactly the bytes that are sent; raises PermissionDenied where nothing may leave.
        ask: Sends them and returns what came back, checked; given the longest time, seconds. Raises RemoteFailed.
    """

    work: Work
    asker: Asker
    texts: int
    seal: Callable[[EncodingRemote], bytes]
    ask: Callable[[EncodingRemote, bytes, float], Awaitable[Arrived[_Out]]]


class Courier:
    """Used on the event loop of a dispatch.

    Args:
        dispatch: The event loop, and what is noted of each machine.
        models: This box's encoders.
        announcer: Tells what is decided.
    """

    def __init__(self, dispatch: Dispatch, models: Encoders, announcer: EncodingAnnouncer) -> None:
        self.dispatch = dispatch
        self.models = models
        self.announcer = announcer

    async def carry(self, desk: EncodingDesk, parcel: Parcel[_Out], within_s: float) -> _Out:
        """Has a machine do something; on the event loop.

        Args:
            desk: The machine.
            parcel: What it is to do.
            within_s: Longest time, seconds.

        Raises:
            RemoteFailed: It did not, or not as it must; that is noted.
            PermissionDenied: Nothing may leave; nothing was sent.
        """
        desk.desk.under_way += 1
        try:
            async with asyncio.timeout(within_s):
                return await self._ask(desk, parcel, within_s)
        except TimeoutError as error:
            raise self._wrong(desk, RemoteFailed("it was not done in the time it had")) from error
        except RemoteUnfit as error:
            self._unfit(desk, parcel.work, str(error))
            raise
        except RemoteFailed as error:
            raise self._wrong(desk, error) from error
        except EdgeRagError:
            raise
        except Exception as error:
            raise self._wrong(desk, RemoteFailed(f"asking it failed: {error!r}")) from error
        finally:
            desk.desk.under_way -= 1

    async def introduce(self, desk: EncodingDesk, within_s: float) -> None:
        """Asks a machine which models it has, before anything is to be done, and says so aloud where it has others."""
        for work in Work:
            if work.use in desk.desk.remote.uses:
                try:
                    async with asyncio.timeout(within_s):
                        await self._agree(desk, work, within_s)
                except RemoteUnfit as error:
                    self._unfit(desk, work, str(error))
                except (RemoteFailed, TimeoutError) as error:
                    desk.desk.last_problem = str(error) or "it does not answer"
                    return

    def lied(self, desk: EncodingDesk, work: Work) -> None:
        """Notes that a machine gives out vectors of another model as those of this one; on the event loop."""
        problem = "a vector it sent is not the one that its model gives here; it is asked no more for now"
        self._wrong(desk, RemoteFailed(problem))
        self._unfit(desk, work, problem)

    async def _ask(self, desk: EncodingDesk, parcel: Parcel[_Out], within_s: float) -> _Out:
        dispatch, began = self.dispatch, self.dispatch.clock()
        if not desk.desk.breaker.lets_through(began):
            raise RemoteFailed("it is left alone", busy=True)
        dispatch.tried(desk.desk)
        await self._agree(desk, parcel.work, within_s)
        sealed = parcel.seal(desk.remote)
        asked = dispatch.clock()
        self.announcer.sent(parcel.asker, desk.name, parcel.work, sealed, parcel.texts, asked)
        desk.desk.sent_bytes += len(sealed)
        arrived = await parcel.ask(desk.remote, sealed, max(0.001, within_s - (asked - began)))
        took = dispatch.clock() - asked
        pace = desk.paces[parcel.work]
        desk.paces[parcel.work] = pace.after(parcel.texts, took, arrived.queue_s, arrived.compute_s)
        if parcel.work.use is OffloadUse.RERANK:
            desk.desk.reranked += 1
        else:
            desk.desk.embedded_texts += parcel.texts
        dispatch.succeeded(desk.desk)
        return arrived.value

    async def _agree(self, desk: EncodingDesk, work: Work, within_s: float) -> None:
        if desk.known is None:
            desk.known = await desk.remote.describe(within_s)
        problem = self.models.differs(desk.known, work)
        if problem:
            raise RemoteUnfit(problem)
        desk.fit(work)

    def _unfit(self, desk: EncodingDesk, work: Work, problem: str) -> None:
        now = self.dispatch.clock()
        desk.unfit(work, now)
        desk.desk.last_problem = problem
        self.dispatch.succeeded(desk.desk)  # it is there and does what it can
        self.announcer.unfit(desk.name, work, problem, now)
        _log.error("a machine has other models than this box and is not asked", remote=desk.name, problem=problem)

    def _wrong(self, desk: EncodingDesk, error: RemoteFailed) -> RemoteFailed:
        if not error.busy:
            desk.known = None  # whoever is there next may be another
        self.dispatch.went_wrong(desk.desk, str(error), error.busy)
        return error
