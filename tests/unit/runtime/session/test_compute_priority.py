from __future__ import annotations

import os
import sys
import threading

import pytest

from edge_rag.runtime.session.process import NICENESS, step_back

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_that_steps_back_takes_those_it_starts_along_and_nobody_else() -> None:
    found: dict[str, int] = {}

    def compute() -> None:
        found["before"] = niceness()
        step_back()
        step_back()
        started = threading.Thread(target=lambda: found.update(started=niceness()))
        started.start()
        started.join()
        found["after"] = niceness()

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert found["after"] == found["started"] == min(19, found["before"] + NICENESS)
    assert niceness() == found["before"]
