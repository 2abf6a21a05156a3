"""Ctrl-C while a client waits for the next reply."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from edge_rag.client.transport import SyncReplies


class Interrupted:
    """A call whose wait is interrupted where the condition is released but nothing waits yet."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def __next__(self) -> Any:
        condition = threading.Condition()
        with condition:
            condition.release()
            if self.error is not None:
                raise self.error


@pytest.mark.parametrize(("raised", "seen"), [(KeyboardInterrupt(), KeyboardInterrupt), (None, RuntimeError)])
def test_an_interrupt_inside_the_wait_for_a_reply_stays_an_interrupt(
    raised: BaseException | None, seen: type[BaseException]
) -> None:
    with pytest.raises(seen):
        next(SyncReplies(cast(Any, Interrupted(raised)), "localhost:1"))
