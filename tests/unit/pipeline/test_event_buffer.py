"""What lies between a generator and its reader is bounded, and nobody blocks."""

from __future__ import annotations

import asyncio
import threading

from edge_rag.pipeline.event_buffer import EventBuffer


class Speaker:
    """Says numbers on a thread of its own, as long as it is let."""

    def __init__(self, channel: EventBuffer[int], count: int) -> None:
        self._channel = channel
        self._count = count
        self._may = threading.Event()
        self._may.set()
        self.pauses = 0
        self.ahead = 0
        self.taken = 0
        self.paused = threading.Event()
        self.thread = threading.Thread(target=self._speak)

    def pause(self) -> None:
        self.pauses += 1
        self._may.clear()
        self.paused.set()

    def resume(self) -> None:
        self._may.set()

    def _speak(self) -> None:
        for number in range(self._count):
            assert self._may.wait(60)
            self._channel.put(number)
            self.ahead = max(self.ahead, number + 1 - self.taken)


async def test_a_reader_that_stops_has_no_more_than_the_bound_before_it_and_misses_nothing() -> None:
    channel = EventBuffer[int](asyncio.get_running_loop(), 8)
    speaker = Speaker(channel, 1000)
    channel.attach(speaker)
    speaker.thread.start()
    assert await asyncio.to_thread(speaker.paused.wait, 60)
    heard: list[int] = []
    while len(heard) < 1000:
        number = await channel.get()
        assert number is not None
        heard.append(number)
        speaker.taken = len(heard)
    assert heard == list(range(1000))
    assert speaker.pauses >= 1
    assert speaker.ahead <= 9
    speaker.thread.join()


async def test_a_generator_that_speaks_before_it_can_be_reached_is_paused_as_soon_as_it_can() -> None:
    channel = EventBuffer[int](asyncio.get_running_loop(), 4)
    speaker = Speaker(channel, 0)
    for number in range(6):
        channel.put(number)
    channel.attach(speaker)
    assert speaker.paused.is_set()


async def test_the_end_comes_after_all_that_was_said() -> None:
    channel = EventBuffer[int](asyncio.get_running_loop(), 4)
    channel.put(1)
    await asyncio.sleep(0)
    channel.end()
    assert [await channel.get(), await channel.get()] == [1, None]
