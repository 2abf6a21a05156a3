import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from edge_rag.api.v1 import common_pb2, rag_pb2
from edge_rag.cli.exit_codes import ExitCode
from tests.unit.cli.scripted_daemon import Handler, ScriptedDaemon, finished


def in_mode(mode: rag_pb2.AnswerMode.ValueType, model: str | None = None) -> Handler:
    """Answers in a mode, from three passages of which two fit the model's context."""

    def handler(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        given = [common_pb2.Passage(document_id=n, document=f"{n}.pdf", page=3, start=1, end=9) for n in "abc"]
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(passages=given, mode=mode, model=model))
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Every year."))
        last = finished()
        last.finished.prompt_passages = 2
        yield last

    return handler


@pytest.mark.parametrize(
    ("mode", "model", "told"),
    [
        (rag_pb2.ANSWER_MODE_QUOTE, None, "quoted from the documents"),
        (rag_pb2.ANSWER_MODE_CITE, "smollm2", "written by smollm2, checked against the documents"),
        (rag_pb2.ANSWER_MODE_FREE, "smollm2", "unchecked: written by smollm2, may be wrong"),
        (rag_pb2.ANSWER_MODE_FREE, None, "unchecked: written by a language model, may be wrong"),
    ],
)
def test_every_answer_says_what_its_mode_promises(
    scripted: ScriptedDaemon, mode: rag_pb2.AnswerMode.ValueType, model: str | None, told: str
) -> None:
    scripted.script("Ask", in_mode(mode, model), in_mode(mode, model))
    command = ["ask", "how often?"]
    assert told in scripted.run(*command).stderr.splitlines()
    shown = scripted.json(*command)
    assert (shown["mode"], shown["model"]) == (rag_pb2.AnswerMode.Name(mode)[12:].lower(), model)


def test_what_the_model_was_given_is_listed_and_is_no_source(scripted: ScriptedDaemon) -> None:
    free = in_mode(rag_pb2.ANSWER_MODE_FREE)
    scripted.script("Ask", free, free)
    command = ["ask", "how often?"]
    printed = scripted.run(*command).stdout
    given = "Given to the model, not checked against it:\n  a.pdf, page 3, characters 1-9\n"
    assert printed.endswith(f"{given}  b.pdf, page 3, characters 1-9\n")
    assert "[" not in printed
    shown = scripted.json(*command)
    assert shown["citations"] == []
    assert len(shown["given_to_model"]) == shown["prompt_passages"] == 2
    assert shown["given_to_model"][1] == {"document_id": "b", "document": "b.pdf", "page": 3, "start": 1, "end": 9}


def contradicted(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
    yield rag_pb2.AskResponse(passages=rag_pb2.Passages(mode=rag_pb2.ANSWER_MODE_CITE, model="smollm2"))
    yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Every 64 days. By hand."))
    for start, end, reason in ((0, 14, 3), (15, 23, 1)):
        mark = rag_pb2.Unsupported(answer_start=start, answer_end=end)
        mark.reason = reason  # type: ignore[assignment]
        yield rag_pb2.AskResponse(unsupported=mark)
    cited = rag_pb2.Citation(document="a.pdf", page=2, text="Done by hand.", answer_start=15, answer_end=23)
    yield rag_pb2.AskResponse(citation=cited)
    conflict = rag_pb2.NumberConflict(answer_end=14, claimed="64 days", stated="46 days", document="b.pdf", page=7)
    last = rag_pb2.Finished(reason=rag_pb2.FINISH_REASON_STOP, conflicts=[conflict])
    yield rag_pb2.AskResponse(finished=last)


def test_contradicted_numbers_and_late_sources_are_told_below_the_answer(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", contradicted)
    command = ["ask", "how often?"]
    result = scripted.run(*command)
    assert "The answer says 64 days; b.pdf, page 7 says 46 days." in result.stderr
    assert "A source was found at the end for: By hand." in result.stderr
    shown = scripted.json(*command)
    assert shown["unsupported"] == [{"start": 0, "end": 14, "text": "Every 64 days.", "reason": "other_number"}]
    assert [(each["claimed"], each["stated"]) for each in shown["conflicts"]] == [("64 days", "46 days")]


def not_found(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
    yield rag_pb2.AskResponse(passages=rag_pb2.Passages(mode=rag_pb2.ANSWER_MODE_QUOTE))
    yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Not found."))
    text = "The\n pump. " + "o" * 200
    nearest = rag_pb2.NearestPassage(document="a.pdf", page=3, start=1, end=9, text=text, share=0.5)
    last = rag_pb2.Finished(reason=rag_pb2.FINISH_REASON_NOT_FOUND)
    for reason in (1, 2, 3, 4, 99):
        nearest.reason = reason  # type: ignore[assignment]
        last.nearest.append(nearest)
    last.nearest[0].lacks.extend(["bearing", "grease"])
    yield rag_pb2.AskResponse(finished=last)


def test_what_is_not_found_comes_with_the_nearest_passages_and_what_they_lack(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", not_found)
    command = ["ask", "how often?"]
    result = scripted.run(*command)
    text, blank, heading, *lines = result.stdout.splitlines()
    assert (text, blank, heading) == ("Not found.", "", "Nearest passages:")
    assert [line.partition("1-9: ")[2] for line in lines[::2]] == [
        "lacks: bearing, grease",
        "no sentence is close enough to the question",
        "in another language, and not close enough to the question",
        "does not support what the model wrote",
        "not taken for an answer",
    ]
    assert lines[1] == f"    The pump. {'o' * 150}…"
    assert "quoted" not in result.stderr
    shown = scripted.json(*command)
    assert [each["reason"] for each in shown["nearest"]] == [
        *("lacks_words", "not_similar", "other_language", "not_supported", "unrecognized_99")
    ]
    assert (shown["nearest"][0]["lacks"], shown["nearest"][0]["similarity"]) == (["bearing", "grease"], None)


def cut(_: Any, context: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
    yield rag_pb2.AskResponse(passages=rag_pb2.Passages(mode=rag_pb2.ANSWER_MODE_FREE))
    yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text='{"hours": 20'))
    context.abort(grpc.StatusCode.OUT_OF_RANGE, "the answer was cut after 12 tokens")


def test_a_cut_answer_in_a_format_is_not_printed_and_has_an_exit_code_of_its_own(
    scripted: ScriptedDaemon, tmp_path: Path
) -> None:
    scripted.script("Ask", cut)
    command = ["ask", "how often?", "--regex", "[0-9]+ hours"]
    result = scripted.run(*command)
    assert (result.exit_code, result.stdout) == (ExitCode.TRUNCATED, "")
    assert "the answer was cut after 12 tokens" in result.stderr
    in_json = scripted.json(*command)
    assert in_json["error"]["code"] == "OUT_OF_RANGE"
    questions = tmp_path / "questions.txt"
    questions.write_text("how often?\n")
    command[1:2] = ["--questions", str(questions)]
    (line,) = scripted.run(*command).stdout.splitlines()
    assert json.loads(line)["error"]["code"] == "OUT_OF_RANGE"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (rag_pb2.FINISH_REASON_STOP, ""),
        (rag_pb2.FINISH_REASON_LENGTH, "The answer is cut after 7 tokens: allow more with --max-tokens."),
        (77, "The answer ended for a reason that this version does not know: unrecognized_77."),
    ],
)
def test_an_answer_that_did_not_come_to_its_end_says_so(
    scripted: ScriptedDaemon, reason: rag_pb2.FinishReason.ValueType, told: str
) -> None:
    def handler(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Every ye"))
        last = finished()
        last.finished.reason = reason
        yield last

    scripted.script("Ask", handler)
    result = scripted.run("ask", "how often?")
    said = [line for line in result.stderr.splitlines() if re.search("cut|ended", line)]
    assert said == ([told] if told else [])
