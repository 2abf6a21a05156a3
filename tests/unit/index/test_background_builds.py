"""What is asked for is built, also where it is asked for while a build goes on, and nothing is built for nothing."""

import os
import threading
from collections.abc import Iterator

import pytest

from edge_rag.index.ivf_build import Checkpoint
from edge_rag.index.local import BackgroundBuilds


class Building:
    """Builds that go on until they are let, and what is due."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.proceed = threading.Semaphore(0)
        self.built: list[int] = []
        self.due: set[int] = set()
        self.builds = BackgroundBuilds(self.build, self.due.__contains__)

    def build(self, collection: int, checkpoint: Checkpoint) -> None:
        self.begun.release()
        assert self.proceed.acquire(timeout=60)
        checkpoint(0.5)
        self.built.append(collection)


@pytest.fixture
def building() -> Iterator[Building]:
    there = Building()
    yield there
    there.proceed.release()
    there.builds.close()


@pytest.mark.parametrize("due", [True, False])
def test_a_request_during_a_build_repeats_it_if_it_is_still_due(building: Building, due: bool) -> None:
    building.builds.request(1)
    assert building.begun.acquire(timeout=60)
    for _ in range(3):
        building.builds.request(1)
    assert building.builds.pending(1)
    if due:
        building.due.add(1)
    building.proceed.release(2)
    building.builds.wait()
    assert building.built == [1] * (2 if due else 1)


def test_requests_before_a_build_starts_are_merged_and_served_in_order(building: Building) -> None:
    building.builds.request(1)
    assert building.begun.acquire(timeout=60)
    for collection in (2, 3, 2, 3):
        building.builds.request(collection)
    building.proceed.release(3)
    building.builds.wait()
    assert building.built == [1, 2, 3]


def test_closing_gives_up_what_is_being_built_and_what_waits(building: Building) -> None:
    building.builds.request(1)
    assert building.begun.acquire(timeout=60)
    building.builds.request(2)
    closing = threading.Thread(target=building.builds.close)
    closing.start()
    while building.builds.pending(2):
        os.sched_yield()
    building.proceed.release()
    closing.join(60)
    assert not closing.is_alive()
    assert building.built == []
