import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from edge_rag.api.v1 import rag_pb2
from edge_rag.cli.chat.history import LONGEST_LINE, MOST_LINES, History
from tests.support.terminal import CTRL_C, CTRL_D, UP, edge_rag_at_a_terminal
from tests.unit.cli.chat.test_session import Answers
from tests.unit.cli.scripted_daemon import Handler, ScriptedDaemon


def begins_and_waits(begun: threading.Event, gone: threading.Event) -> Handler:
    def handler(_: Any, context: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
        context.add_callback(gone.set)
        begun.set()
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages())
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Half of"))
        gone.wait(60)

    return handler


def test_at_a_terminal_ctrl_c_stops_the_answer_and_keeps_the_chat(scripted: ScriptedDaemon, tmp_path: Path) -> None:
    answers, begun, gone = Answers(), threading.Event(), threading.Event()
    scripted.script("Ask", answers, begins_and_waits(begun, gone), answers)
    home = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with edge_rag_at_a_terminal("chat", "--server", scripted.address, environment=home) as terminal:
        terminal.wait_for("Ctrl-D ends the chat.")
        terminal.wait_for("> ")
        terminal.press("one?\r")
        terminal.wait_for("quoted from the documents")
        terminal.wait_for("> ")
        terminal.press("two?\r")
        terminal.wait_for("Half of")
        assert begun.is_set()
        terminal.press(CTRL_C)
        terminal.wait_for("stopped")
        assert gone.wait(60)
        terminal.wait_for("> ")
        terminal.press("not this")
        terminal.wait_for("not this")
        terminal.interrupt("> ")
        terminal.press(UP + "\x7f, again?\r")  # the last line, edited
        terminal.wait_for("Answer 2.")
        terminal.wait_for("> ")
        terminal.press(CTRL_D)
        assert terminal.ended() == 0
    assert [each.question for each in answers.asked] == ["one?", "two, again?"]
    assert answers.turns == [[], ["one?"]]
    kept = tmp_path / "state" / "edge-rag" / "chat-history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert kept.read_text() == "one?\ntwo?\ntwo, again?\n"
    with edge_rag_at_a_terminal("chat", "--server", scripted.address, environment=home) as terminal:
        terminal.wait_for("> ")
        terminal.press(UP)
        terminal.wait_for("two, again?")
        terminal.interrupt("> ")
        terminal.press(CTRL_D)
        assert terminal.ended() == 0
    with edge_rag_at_a_terminal("chat", "--no-history", "--server", scripted.address, environment=home) as terminal:
        terminal.wait_for("> ")
        terminal.press("/help\r")
        assert "two" not in terminal.wait_for("/quit")
        terminal.wait_for("> ")
        terminal.press("/quit\r")
        assert terminal.ended() == 0
    assert kept.read_text() == "one?\ntwo?\ntwo, again?\n"


def test_the_history_keeps_the_newest_lines_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"{number}\n" for number in range(2 * MOST_LINES + 1)))
    path.chmod(0o644)
    history = History(path)
    assert history.lines() == [str(number) for number in range(MOST_LINES + 1, 2 * MOST_LINES + 1)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    history.add("x" * (LONGEST_LINE + 1))
    history.add("newest \udcff")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert History(path).lines()[-2:] == [str(2 * MOST_LINES), "newest ?"]
    assert len(History(path).lines()) == MOST_LINES
    assert History(tmp_path / "none").lines() == []
