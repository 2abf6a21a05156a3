from __future__ import annotations

import os
import sys
import threading

import pytest

from edge_rag.runtime.session.process import NICENESS, lower_priority

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


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
