"""A chat at a terminal over the sample documents."""

from pathlib import Path

import pytest

from tests.e2e.support.running_daemon import RunningDaemon
from tests.support.terminal import CTRL_D, edge_rag_at_a_terminal


@pytest.mark.smoke
def test_a_follow_up_is_answered_as_the_question_that_it_stands_for(daemon: RunningDaemon, tmp_path: Path) -> None:
    environment = {"EDGE_RAG_SERVER": daemon.address, "XDG_STATE_HOME": str(tmp_path)}
    with edge_rag_at_a_terminal("chat", environment=environment) as terminal:
        terminal.wait_for("> ")
        terminal.press("How often must the pump bearings be greased?\r")
        terminal.wait_for("every 2,000 operating hours")
        terminal.wait_for("[1] lubrication-schedule.md")
        terminal.wait_for("> ")
        terminal.press("How many grams of grease do they take?\r")
        terminal.wait_for("searched for: How many grams of grease do they take? ")
        terminal.wait_for("35 grams")
        terminal.wait_for("> ")
        terminal.press("/sources\r")
        terminal.wait_for("[1] lubrication-schedule.md")
        terminal.wait_for("    | Each pump bearing takes 35 grams")
        terminal.wait_for("> ")
        terminal.press(CTRL_D)
        assert terminal.ended() == 0
