"""The buffer between a generator and its reader is bounded, and no method blocks."""

import asyncio
import threading

from edge_rag.pipeline.event_buffer import EventBuffer


class Producer:
    """Produces numbers on a thread of its own unless it is paused."""

    def __init__(self, buffer: EventBuffer[int], count: int) -> None:
        self._buffer = buffer
        self._count = count
        self._running = threading.Event()
        self._running.set()
        self.pauses = 0
        self.ahead = 0
        self.taken = 0
        self.paused = threading.Event()
        self.thread = threading.Thread(target=self._produce)

    def pause(self) -> None:
        self.pauses += 1
        self._running.clear()
        self.paused.set()

    def resume(self) -> None:
        self._running.set()

    def _produce(self) -> None:
        for number in range(self._count):
            assert self._running.wait(60)
            self._buffer.put(number)
            self.ahead = max(self.ahead, number + 1 - self.taken)


async def test_a_reader_that_stops_finds_at_most_the_capacity_and_misses_nothing() -> None:
    buffer = EventBuffer[int](asyncio.get_running_loop(), 8)
    producer = Producer(buffer, 1000)
    buffer.attach(producer)
    producer.thread.start()
    assert await asyncio.to_thread(producer.paused.wait, 60)
    received: list[int] = []
    while len(received) < 1000:
        number = await buffer.get()
        assert number is not None
        received.append(number)
        producer.taken = len(received)
    assert received == list(range(1000))
    assert producer.pauses >= 1
    assert producer.ahead <= 9
    producer.thread.join()


async def test_a_producer_that_overfills_the_buffer_before_it_is_attached_is_paused_then() -> None:
    buffer = EventBuffer[int](asyncio.get_running_loop(), 4)
    producer = Producer(buffer, 0)
    for number in range(6):
        buffer.put(number)
    buffer.attach(producer)
    assert producer.paused.is_set()


async def test_the_end_comes_after_all_events() -> None:
    buffer = EventBuffer[int](asyncio.get_running_loop(), 4)
    buffer.put(1)
    await asyncio.sleep(0)
    buffer.end()
    assert [await buffer.get(), await buffer.get()] == [1, None]
