from __future__ import annotations

from dataclasses import replace

from edge_rag.cli.commands.status import remote_line
from edge_rag.core.monitoring.status import RemoteInUse

REMOTE = RemoteInUse("office", "edge-rag", "10.0.0.9:7421", "closed", 2, 40, 0, 3 << 20, "", 1.5)


def test_a_remote_that_is_asked_is_told_with_what_it_does() -> None:
    line = "office, edge-rag at 10.0.0.9:7421: asked, 2 under way, 40 done, 0 failed, 1.50 s an answer, 3.0 MiB sent"
    assert remote_line(REMOTE) == line


def test_a_remote_that_is_left_alone_is_told_with_its_latest_problem() -> None:
    line = remote_line(replace(REMOTE, breaker="open", failures=3, last_problem="it stopped speaking", answer_s=None))
    assert "left alone after failures" in line
    assert line.endswith("3.0 MiB sent; last: it stopped speaking")
