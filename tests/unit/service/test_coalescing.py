"""Chunks for a peer arrive complete and in order, in few messages; the first chunk and the end at once."""

import asyncio
from contextlib import aclosing

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import ChunkEvent, Generated, GenerationFailed, QuoteChunk, TextChunk, TokenChunk
from edge_rag.errors import NotReady
from edge_rag.service.inference.peers import coalesced

END = Generated(FinishReason.STOP, Usage(), 0.0, 0.0, None)
NEVER_S = 3600.0


async def joined(sent: list[ChunkEvent], interval_s: float) -> list[ChunkEvent]:
    queue = asyncio.Queue[ChunkEvent]()
    for each in sent:
        queue.put_nowait(each)
    async with aclosing(coalesced(queue.get, asyncio.get_running_loop().time, interval_s)) as events:
        return [event async for event in events]


words = st.one_of(
    st.builds(TokenChunk, st.lists(st.integers(0, 99), min_size=1).map(tuple)),
    st.builds(TextChunk, st.text(min_size=1)),
    st.builds(QuoteChunk, st.integers(0, 9), st.integers(0, 9)),
)


@given(st.lists(words), st.sampled_from([END, GenerationFailed(NotReady("gone"))]), st.sampled_from([0.0, NEVER_S]))
def test_nothing_is_lost_added_or_reordered(
    sent: list[ChunkEvent], end: Generated | GenerationFailed, interval_s: float
) -> None:
    def pieces(events: list[ChunkEvent]) -> list[object]:
        found: list[object] = []
        for event in events:
            match event:
                case TokenChunk():
                    found += event.tokens
                case TextChunk():
                    found += event.text
                case _:
                    found.append(event)
        return found

    received = asyncio.run(joined([*sent, end], interval_s))
    assert pieces(received) == pieces([*sent, end])
    assert received[-1] is end


def test_the_first_chunk_is_passed_on_at_once_and_simultaneous_ones_are_joined() -> None:
    sent: list[ChunkEvent] = [*(TokenChunk((n,)) for n in range(9)), END]
    assert asyncio.run(joined(sent, NEVER_S)) == [TokenChunk((0,)), TokenChunk(tuple(range(1, 9))), END]
    assert asyncio.run(joined(sent, 0.0)) == sent


def test_a_chunk_is_passed_on_after_the_interval_without_a_further_one() -> None:
    async def last_of_two() -> ChunkEvent:
        queue = asyncio.Queue[ChunkEvent]()
        queue.put_nowait(TextChunk("a"))
        queue.put_nowait(TextChunk("b"))
        async with aclosing(coalesced(queue.get, asyncio.get_running_loop().time, 0.01)) as events:
            assert await anext(events) == TextChunk("a")
            return await asyncio.wait_for(anext(events), 60)

    assert asyncio.run(last_of_two()) == TextChunk("b")
