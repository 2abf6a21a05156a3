from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from edge_rag.api.v1 import common_pb2, rag_pb2
from edge_rag.client import AnswerMode, AskOptions, Busy, Finished, PassagesReceived, TextDelta, Turn, TurnSource
from tests.contract.both_clients import Connect, connecting
from tests.unit.cli.scripted_daemon import ScriptedDaemon, finished, refusing


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with connecting(request.param == "asyncio") as opener:
        yield opener


class Listener:
    """Answers each question with its number, cites its only passage twice, and keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[rag_pb2.AskRequest] = []

    def __call__(self, request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        self.asked.append(request)
        passage = common_pb2.Passage(document="pumps.md", context=["Pumps", "Bearings"], text="Grease. Then stop.")
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(passages=[passage], standalone_question="how often?"))
        for piece in ("answer ", str(len(self.asked))):
            yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=piece))
            yield rag_pb2.AskResponse(citation=rag_pb2.Citation(document="pumps.md", text="Grease."))
        yield finished()

    @property
    def turns(self) -> list[tuple[str, str]]:
        return [(turn.question, turn.answer) for turn in self.asked[-1].turns]


def test_each_question_carries_the_turns_before_it_with_what_they_cited(
    connect: Connect, scripted: ScriptedDaemon
) -> None:
    listener = Listener()
    scripted.script("Ask", listener)
    with connect(scripted.address) as client:
        conversation = client.conversation(AskOptions(collection="site", mode=AnswerMode.QUOTE))
        events = list(conversation.ask("and the bearings?"))
        assert isinstance(events[0], PassagesReceived)
        assert events[0].standalone_question == "how often?"
        assert isinstance(events[-1], Finished)
        list(conversation.ask("with what?"))
        source = TurnSource("pumps.md", ("Pumps", "Bearings"), "Grease.")
        assert conversation.turns == (
            Turn("and the bearings?", "answer 1", (source,)),
            Turn("with what?", "answer 2", (source,)),
        )
    first, second = listener.asked
    assert list(first.turns) == []
    assert (first.collection, first.mode) == (second.collection, second.mode) == ("site", rag_pb2.ANSWER_MODE_QUOTE)
    (turn,) = second.turns
    assert (turn.question, turn.answer) == ("and the bearings?", "answer 1")
    assert [(each.document, list(each.section), each.text) for each in turn.sources] == [
        ("pumps.md", ["Pumps", "Bearings"], "Grease.")
    ]


def test_a_question_that_fails_or_is_left_is_no_turn(connect: Connect, scripted: ScriptedDaemon) -> None:
    listener = Listener()
    scripted.script("Ask", listener, refusing(grpc.StatusCode.RESOURCE_EXHAUSTED), listener)
    with connect(scripted.address) as client:
        conversation = client.conversation()
        list(conversation.ask("one"))
        with pytest.raises(Busy):
            list(conversation.ask("two"))
        for event in (left := conversation.ask("three")):
            if isinstance(event, TextDelta):
                break
        left.close()
        list(conversation.ask("four"))
        assert [turn.question for turn in conversation.turns] == ["one", "four"]
    assert listener.turns == [("one", "answer 1")]


def test_the_oldest_turns_are_forgotten_in_steps_and_all_on_demand(connect: Connect, scripted: ScriptedDaemon) -> None:
    listener = Listener()
    scripted.script("Ask", listener)
    carried: list[str] = []
    with connect(scripted.address) as client:
        conversation = client.conversation(AskOptions(turns=(Turn("stored"),)))
        for number in range(14):
            list(conversation.ask(str(number)))
            carried.append(" ".join(question for question, _ in listener.turns))
        assert carried[:2] == ["stored", "stored 0"]
        assert carried[7:10] == ["stored 0 1 2 3 4 5 6", "3 4 5 6 7", "3 4 5 6 7 8"]
        assert carried[11:] == ["3 4 5 6 7 8 9 10", "7 8 9 10 11", "7 8 9 10 11 12"]
        conversation.clear()
        assert conversation.turns == ()
        list(conversation.ask("anew"))
    assert listener.turns == []


def test_a_conversation_is_written_as_markdown(connect: Connect, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", Listener())
    with connect(scripted.address) as client:
        conversation = client.conversation(AskOptions(turns=(Turn("what\nis it?", "A pump."),)))
        list(conversation.ask("how often?"))
        assert conversation.as_markdown() == (
            "**what is it?**\n\nA pump.\n\n**how often?**\n\nanswer 1\n\n1. pumps.md, Pumps > Bearings\n   > Grease.\n"
        )
