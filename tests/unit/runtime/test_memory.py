from __future__ import annotations

import gc
import weakref

from edge_rag.runtime.memory import set_aside_what_stays


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
