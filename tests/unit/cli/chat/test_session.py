import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from edge_rag.api.v1 import common_pb2, rag_pb2
from edge_rag.cli.main import main
from tests.unit.cli.scripted_daemon import ScriptedDaemon, finished, refusing


class Answers:
    """Answers with the number of the question, and keeps the requests."""

    def __init__(self, mode: rag_pb2.AnswerMode.ValueType = rag_pb2.ANSWER_MODE_QUOTE) -> None:
        self.asked: list[rag_pb2.AskRequest] = []
        self._mode = mode

    def __call__(self, request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        self.asked.append(request)
        passage = common_pb2.Passage(document="pumps.md", context=["Pumps", "Bearings"], text="Grease them.", end=12)
        found = rag_pb2.Passages(passages=[passage], mode=self._mode)
        if request.turns:
            found.standalone_question = f"{request.question} {request.turns[-1].question}"
        yield rag_pb2.AskResponse(passages=found)
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=f"Answer {len(self.asked)}."))
        if self._mode == rag_pb2.ANSWER_MODE_QUOTE:
            cited = rag_pb2.Citation(document="pumps.md", page=3, start=0, end=12, text="Grease\nthem.")
            yield rag_pb2.AskResponse(citation=cited)
        yield finished()

    @property
    def turns(self) -> list[list[str]]:
        return [[turn.question for turn in request.turns] for request in self.asked]


def chat(runner: CliRunner, scripted: ScriptedDaemon, *arguments: str, given: str | bytes) -> Result:
    return scripted.run("chat", *arguments, given=given)


def test_each_line_is_a_question_of_one_conversation(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    answers = Answers()
    scripted.script("Ask", answers)
    options = ("--collection", "site", "--mode", "cite", "--max-tokens", "9", "--sentences", "2")
    result = chat(runner, scripted, *options, given="\ufeffhow often?\n\n with what? \r\nwhy?")
    assert result.exit_code == 0
    source = "\n[1] pumps.md, page 3\n"
    assert result.stdout == "".join(f"Answer {number}.\n{source}\n" for number in (1, 2, 3))
    assert answers.turns == [[], ["how often?"], ["how often?", "with what?"]]
    assert {(each.collection, each.mode) for each in answers.asked} == {("site", rag_pb2.ANSWER_MODE_CITE)}
    assert {(each.sampling.max_tokens, each.max_sentences) for each in answers.asked} == {(9, 2)}
    assert "searched for: with what? how often?\n" in result.stderr
    assert "quoted from the documents" in result.stderr


def test_as_json_each_answer_is_one_object(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", Answers(), refusing(grpc.StatusCode.NOT_FOUND, "no collection x"), Answers())
    result = chat(runner, scripted, "--json", given="one?\n/collection x\ntwo?\n/sources\n/new\nthree?")
    assert result.exit_code == 1
    one, two, none, three = map(json.loads, result.stdout.splitlines())
    assert (one["question"], one["answer"], one["citations"][0]["document"]) == ("one?", "Answer 1.", "pumps.md")
    assert two == {"question": "two?", "error": {"code": "NOT_FOUND", "message": "no collection x"}}
    assert none["error"]["code"] == "INVALID_ARGUMENT"
    assert three["question"] == "three?"


def test_commands_change_what_is_asked(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    answers = Answers()
    scripted.script("Ask", answers)
    given = "one\n/mode free\ntwo\n/new\nthree\n/collection logs\nfour\n/etc/hosts?\n/QUIT\nfive"
    assert chat(runner, scripted, given=given).exit_code == 0
    assert [each.question for each in answers.asked] == ["one", "two", "three", "four", "/etc/hosts?"]
    assert answers.turns == [[], ["one"], [], [], ["four"]]
    assert [each.mode for each in answers.asked] == [rag_pb2.ANSWER_MODE_UNSPECIFIED] + 4 * [rag_pb2.ANSWER_MODE_FREE]
    assert [each.collection for each in answers.asked] == 3 * ["default"] + 2 * ["logs"]
    assert len({each.request_id for each in answers.asked}) == 5


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/souces", "there is no command /souces. /help lists the commands"),
        ("/mode loud", "/mode needs one of quote, cite, free, extract"),
        ("/collection", "/collection needs the name of a collection"),
        ("/sources", "there is no answer yet"),
        (b"\xff", "standard input, line 1: not valid UTF-8"),
    ],
)
def test_an_unusable_line_is_said_and_the_chat_goes_on(
    runner: CliRunner, scripted: ScriptedDaemon, line: str | bytes, problem: str
) -> None:
    scripted.script("Ask", Answers())
    given = line if isinstance(line, bytes) else line.encode()
    result = chat(runner, scripted, given=given + b"\nhow?")
    assert problem in result.stderr
    assert "Answer 1." in result.stdout
    assert result.exit_code == 1


def test_a_failed_question_is_no_turn_and_ends_nothing(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    answers = Answers()
    refused = refusing(grpc.StatusCode.FAILED_PRECONDITION, "no language model")
    scripted.script("Ask", answers, refused, answers)
    result = chat(runner, scripted, given="one\ntwo\nthree")
    assert "no language model" in result.stderr
    assert answers.turns == [[], ["one"]]
    assert result.exit_code == 1


def test_the_sources_of_the_last_answer_are_shown_with_what_was_quoted(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    scripted.script("Ask", Answers())
    shown = chat(runner, scripted, given="how?\n/sources").stdout.partition("Answer 1.\n")[2]
    listed = "[1] pumps.md, page 3\n"
    assert shown == f"\n{listed}\n{listed}    Pumps > Bearings\n    | Grease\n    | them.\n"
    scripted.script("Ask", Answers(rag_pb2.ANSWER_MODE_FREE))
    unchecked = chat(runner, scripted, given="how?\n/sources")
    given = "Given to the model, not checked against it:\n  pumps.md, characters 0-12\n"
    assert unchecked.stdout == f"Answer 1.\n\n{given}\n{given}"


def test_the_chat_ends_where_no_daemon_answers_any_more(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    result = runner.invoke(main, ["chat", "--json", "--server", "127.0.0.1:1"], input="one\ntwo")
    assert result.exit_code == 3
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["error"]["code"] == "UNAVAILABLE"
