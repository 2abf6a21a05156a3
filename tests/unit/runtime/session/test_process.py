import gc
import os
import sys
import threading
import weakref

import pytest

from edge_rag.runtime.session.process import NICENESS, freeze_gc, lower_priority, raise_gc_threshold


class Cyclic:
    def __init__(self) -> None:
        self.itself = self


def test_frozen_objects_are_excluded_from_collections_until_the_next_freeze() -> None:
    try:
        cyclic = Cyclic()
        gone = weakref.ref(cyclic)
        freeze_gc()
        assert gc.get_freeze_count() > 0
        del cyclic
        gc.collect()
        assert gone() is not None, "it is frozen"
        freeze_gc()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_a_few_thousand_new_objects_do_not_start_a_collection() -> None:
    before = gc.get_threshold()
    collected: list[dict[str, int]] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(info)

    try:
        raise_gc_threshold()
        gc.collect()
        gc.callbacks.append(note)
        kept = [Cyclic() for _ in range(8000)]
        assert not collected
        kept += [Cyclic() for _ in range(8000)]
        assert collected
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_lower_priority_applies_to_a_thread_and_those_it_starts_only() -> None:
    found: dict[str, int] = {}

    def compute() -> None:
        found["before"] = niceness()
        lower_priority()
        lower_priority()
        started = threading.Thread(target=lambda: found.update(started=niceness()))
        started.start()
        started.join()
        found["after"] = niceness()

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert found["after"] == found["started"] == min(19, found["before"] + NICENESS)
    assert niceness() == found["before"]
