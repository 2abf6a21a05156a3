from __future__ import annotations

import gc
import weakref

from edge_rag.runtime.session.process import freeze_gc, raise_gc_threshold


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


def test_garbage_is_collected_before_the_freeze() -> None:
    try:
        gone = weakref.ref(Cyclic())
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
