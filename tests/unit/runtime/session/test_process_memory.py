from __future__ import annotations

import gc
import weakref

from edge_rag.runtime.session.process import collect_less_often, set_aside_what_stays


class Cyclic:
    def __init__(self) -> None:
        self.itself = self


def test_what_stays_is_left_out_of_collections_until_it_is_set_aside_anew() -> None:
    try:
        cyclic = Cyclic()
        gone = weakref.ref(cyclic)
        set_aside_what_stays()
        assert gc.get_freeze_count() > 0
        del cyclic
        gc.collect()
        assert gone() is not None, "no collection looks at it"
        set_aside_what_stays()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_garbage_is_not_kept_by_being_set_aside() -> None:
    try:
        gone = weakref.ref(Cyclic())
        set_aside_what_stays()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_a_few_thousand_new_objects_are_not_worth_a_collection() -> None:
    before = gc.get_threshold()
    collected: list[dict[str, int]] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(info)

    try:
        collect_less_often()
        gc.collect()
        gc.callbacks.append(note)
        kept = [Cyclic() for _ in range(8000)]
        assert not collected
        kept += [Cyclic() for _ in range(8000)]
        assert collected
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
