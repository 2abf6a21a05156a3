import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import common_pb2, documents_pb2, rag_pb2
from edge_rag.cli.main import main
from edge_rag.cli.output.terminal import printable
from tests.support.terminal import edge_rag_at_a_terminal
from tests.unit.cli.scripted_daemon import Handler, ScriptedDaemon, answering, finished, refusing

ROOT = Path(__file__).parents[3]


def found(request: rag_pb2.SearchRequest, _: Any) -> rag_pb2.SearchResponse:
    hit = common_pb2.Passage(document="log.txt", start=5, end=8, text="oil", score=1.5, context=["Log"])
    return rag_pb2.SearchResponse(hits=[hit], stages=[rag_pb2.StageTime(stage="retriever", compute_seconds=0.5)])


def test_an_answer_is_printed_with_its_sources_and_times_apart(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("Every 2,000 hours."))
    result = scripted.run("ask", "-v", "how often?")
    assert result.exit_code == 0
    assert result.stdout == "Every 2,000 hours.\n\n[1] manual.pdf, page 3, Pumps › Standby pump\n"
    assert "retriever 500 ms (+250 ms queued) · generator 1.50 s · first token after 750 ms" in result.stderr


def test_times_are_for_who_asks_for_them_and_quiet_leaves_the_answer_alone(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("Every 2,000 hours."))
    piped = scripted.run("ask", "how often?")
    assert piped.stderr == "\nquoted from the documents\n"
    quiet = scripted.run("ask", "--quiet", "how often?")
    assert (quiet.stdout, quiet.stderr) == (piped.stdout, "")
    scripted.script("Search", found)
    assert scripted.run("search", "oil").stderr == ""
    assert "500 ms" in scripted.run("search", "-v", "oil").stderr


def in_languages(question: str | None, *quoted: str | None) -> Handler:
    """Answers a question of one language by quotes of others."""

    def handler(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(question_language=question))
        for number, language in enumerate(quoted):
            yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="تُشحم المحامل."))
            yield rag_pb2.AskResponse(unsupported=rag_pb2.Unsupported(answer_end=3))
            source = rag_pb2.Citation(document=f"دليل {number}.pdf", page=3, start=1, end=9, language=language)
            yield rag_pb2.AskResponse(citation=source)
        yield finished()

    return handler


def test_a_quote_in_another_language_than_the_question_says_so(scripted: ScriptedDaemon) -> None:
    command = ["ask", "Wie oft?"]
    scripted.script("Ask", in_languages("de", "ar", "de", None, "sw"))
    sources = scripted.run(*command).stdout.splitlines()[-4:]
    assert [line.partition("page 3")[2] for line in sources] == [" (العربية)", "", "", " (sw)"]
    scripted.script("Ask", in_languages(None, "ar"))
    assert scripted.run(*command).stdout.endswith("page 3\n")

    scripted.script("Ask", in_languages("de", "ar"))
    answer = scripted.json(*command)
    assert (answer["question_language"], answer["citations"][0]["language"]) == ("de", "ar")


def test_the_note_on_a_sentence_without_source_is_in_the_language_of_the_question(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", in_languages("de", "ar"))
    assert "تُشحم المحامل. [ohne Quelle]\n" in scripted.run("ask", "?").stdout
    scripted.script("Ask", in_languages(None, "ar"))
    assert "تُشحم المحامل. [no source]\n" in scripted.run("ask", "?").stdout


def test_a_source_is_named_by_page_and_headings_and_else_by_characters(scripted: ScriptedDaemon) -> None:
    def handler(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Pumps\nGrease it."))
        heading = rag_pb2.Citation(document="notes.md", end=5, text="Pumps", answer_end=5, context=True)
        yield rag_pb2.AskResponse(citation=heading)
        for document, section in (("notes.md", ["Pumps"]), ("notes.md", ["Pumps"]), ("log.html", [])):
            source = rag_pb2.Citation(document=document, start=6, end=16, text="Grease it.", section=section)
            yield rag_pb2.AskResponse(citation=source)
        yield finished()

    scripted.script("Ask", handler)
    assert scripted.run("ask", "?").stdout.splitlines()[-2:] == [
        "[1] notes.md, Pumps",
        "[2] log.html, characters 6-16",
    ]


def test_names_from_right_to_left_keep_their_place_on_a_terminal_and_are_unchanged_elsewhere(
    scripted: ScriptedDaemon,
) -> None:
    scripted.script("Ask", in_languages("de", "ar"))
    assert "[1] دليل 0.pdf, page 3 (العربية)\n" in scripted.run("ask", "Wie oft?").stdout
    scripted.script("Ask", in_languages("de", "ar"))
    command = ("ask", "Wie oft?", "--server", scripted.address)
    with edge_rag_at_a_terminal(*command, environment={}) as terminal:
        terminal.wait_for("تُشحم المحامل. [ohne Quelle]")
        terminal.wait_for("[1] \u2068دليل\u2069 0.pdf, page 3 (\u2068العربية\u2069)")


@pytest.mark.parametrize(
    ("did_you_mean", "question", "line"),
    [
        (None, "how often?", "searched for: how often are bearings greased?\n"),
        (None, "how often are bearings greased?", ""),
        ("often?", "offen?", "did you mean: often?\n"),
    ],
)
def test_what_was_searched_for_is_told_where_it_is_not_the_question(
    scripted: ScriptedDaemon, did_you_mean: str | None, question: str, line: str
) -> None:
    told: dict[str, Any] = {"standalone_question": "how often are bearings greased?", "did_you_mean": did_you_mean}

    def asking(request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(**told))
        yield finished()

    scripted.script("Search", lambda request, context: rag_pb2.SearchResponse(**told))
    scripted.script("Ask", asking)
    for command in ("ask", "search"):
        errors = scripted.run(command, question).stderr
        assert line in errors
        assert ("searched for" in errors, "did you mean" in errors) == ("searched" in line, "mean" in line)
        shown = scripted.json(command, question)
        assert (shown["question"], shown["did_you_mean"]) == (question, did_you_mean)


def test_an_answer_as_json_has_its_values_and_nothing_else_is_printed(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("Every 2,000 hours."))
    result = scripted.run("ask", "how often?", "--json", "--request-id", "ticket-17")
    shown = json.loads(result.stdout)
    assert result.stderr == ""
    assert (shown["request_id"], shown["question"], shown["mode"]) == ("ticket-17", "how often?", "quote")
    assert (shown["answer"], shown["finish_reason"]) == ("Every 2,000 hours.", "stop")
    (citation,) = shown["citations"]
    assert (citation["document"], citation["page"], citation["text"]) == ("manual.pdf", 3, "Every 2,000 hours.")
    assert [citation[end] for end in ("start", "end", "answer_start", "answer_end")] == [10, 28, 0, 18]
    assert (citation["section"], citation["context"]) == (["Pumps", "Standby pump"], False)
    usage = {key: count for key, count in shown["usage"].items() if count}
    assert usage == {"prompt_tokens": 90, "generated_tokens": 7, "forced_tokens": 5, "model_steps": 3}
    assert shown["timings"] == {
        "first_token_s": 0.75,
        "stages": [
            {"stage": "retriever", "queue_s": 0.25, "compute_s": 0.5},
            {"stage": "generator", "queue_s": 0.0, "compute_s": 1.5},
        ],
    }


def test_search_for_people_shows_where_each_hit_is_from(scripted: ScriptedDaemon) -> None:
    scripted.script("Search", found)
    result = scripted.run("search", "oil")
    assert result.stdout == "1. log.txt, characters 5-8, score 1.500  (Log)\n   oil\n\n"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (grpc.StatusCode.NOT_FOUND, 4),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 5),
        (grpc.StatusCode.FAILED_PRECONDITION, 5),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 6),
        (grpc.StatusCode.INTERNAL, 1),
    ],
)
def test_each_refusal_has_its_exit_code_and_its_reason(
    scripted: ScriptedDaemon, code: grpc.StatusCode, exit_code: int
) -> None:
    scripted.script("Search", refusing(code, "because of the weather", (("grpc-retry-pushback-ms", "3600000"),)))
    for_people = scripted.run("search", "oil")
    assert for_people.exit_code == exit_code
    assert for_people.stdout == ""
    assert "because of the weather" in for_people.stderr
    for_machines = scripted.run("search", "oil", "--json")
    assert for_machines.exit_code == exit_code
    error = json.loads(for_machines.stdout)["error"]
    assert error["code"] == code.name
    assert "because of the weather" in error["message"]
    assert for_machines.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["ask", "a", "--questions", "-"],
        ["ask", "a", "--sentences", "9"],
        ["ask", "a", "--json-schema", "no-such-file.json"],
        ["ask", "a", "--json-schema", str(ROOT / "tests/fixtures/quoter/paged.onnx.data")],
        ["ask", "a", "--regex", "a", "--json-schema", str(ROOT / "tests/fixtures/quoter/manifest.json")],
        ["frobnicate"],
        ["status", "--server", "x"],
    ],
)
def test_a_wrong_command_line_ends_with_two_and_says_so_in_json_too(runner: CliRunner, arguments: list[str]) -> None:
    assert runner.invoke(main, arguments).exit_code == 2
    result = runner.invoke(main, [*arguments, "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] in ("USAGE", "INVALID_ARGUMENT")


def test_document_text_cannot_steer_the_terminal(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("\x1b]0;owned\x07\u202eplain\ttext\n"))
    result = scripted.run("ask", "how?")
    assert result.stdout.startswith("\\x1b]0;owned\\x07\\u202eplain\ttext\n")
    assert printable("a\r\nb\x9b") == "a\nb\\x9b"


def test_invisible_text_is_escaped_in_json_and_means_the_same(scripted: ScriptedDaemon) -> None:
    hidden = "\u202eplain\u200e \U000e0041\U000e0042 \u2066x\u2069 pay\u200dpal می\u200cخواهم \x9b"
    scripted.script("Ask", answering(hidden))
    result = scripted.run("ask", "how?", "--json")
    assert json.loads(result.stdout)["answer"] == hidden
    assert {character for character in result.stdout if not character.isprintable()} == {"\n", "\u200c"}
    assert r"\u202eplain\u200e \udb40\udc41\udb40\udc42 \u2066x\u2069 pay\u200dpal" in result.stdout


def test_streamed_text_is_escaped_as_a_whole(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("می\u200cخو"))  # in two parts, of which the second begins with the joiner
    result = scripted.run("ask", "how?")
    assert result.stdout.startswith("می\u200cخو\n")


def test_questions_of_a_file_are_answered_in_order_whoever_is_done_first(scripted: ScriptedDaemon) -> None:
    last_arrived = threading.Event()

    def answer(request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        if request.question == "third?":
            last_arrived.set()
        elif request.question == "first?":
            last_arrived.wait(30)
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=request.question.upper()))
        yield finished()

    scripted.script("Ask", answer)
    arguments = ["ask", "--questions", "-", "--concurrency", "3"]
    result = scripted.run(*arguments, given="\ufefffirst?\n\n  second? \r\n \nthird?")
    assert result.exit_code == 0
    assert [json.loads(line)["answer"] for line in result.stdout.splitlines()] == ["FIRST?", "SECOND?", "THIRD?"]


def test_a_question_that_fails_is_its_own_line_and_the_others_are_answered(
    scripted: ScriptedDaemon, tmp_path: Path
) -> None:
    def search(request: rag_pb2.SearchRequest, context: grpc.ServicerContext) -> rag_pb2.SearchResponse:
        if request.query == "bad":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such collection")
        return found(request, context)

    scripted.script("Search", search)
    file = tmp_path / "questions.txt"
    file.write_bytes(b"good\nbad\nna\xefve\ngood\n")
    result = scripted.run("search", "--questions", str(file))
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [line["question"] for line in lines] == ["good", "bad", "na�ve", "good"]
    shape = ["did_you_mean", "hits", "question", "standalone_question", "timings"]
    assert [sorted(line) for line in lines[::3]] == [shape] * 2
    assert lines[1]["error"] == {"code": "NOT_FOUND", "message": "no such collection"}
    assert lines[2]["error"]["message"] == f"{file}, line 3: not valid UTF-8 at byte 3 (0xef)"
    assert "2 of 4 questions failed" in result.stderr


def test_a_question_of_ten_megabytes_gets_a_clear_error_about_its_length(scripted: ScriptedDaemon) -> None:
    result = scripted.run("ask", "--questions", "-", given="why " * 2_621_440)
    assert result.exit_code == 1
    assert "10,485,759 characters are too many" in json.loads(result.stdout)["error"]["message"]
    assert not scripted.calls


@pytest.mark.parametrize("arguments", [["ask", "how?"], ["ask", "--questions", "QUESTIONS", "--concurrency", "1"]])
def test_ctrl_c_cancels_the_call_and_says_so(scripted: ScriptedDaemon, tmp_path: Path, arguments: list[str]) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("how?\n" * 100)
    arguments = [str(questions) if word == "QUESTIONS" else word for word in arguments]
    arrived, cancelled = threading.Event(), threading.Event()

    def wait(_: Any, context: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
        context.add_callback(cancelled.set)
        arrived.set()
        cancelled.wait(30)
        yield finished()

    scripted.script("Ask", wait)
    command = [sys.executable, "-m", "edge_rag.cli.main", *arguments, "--server", scripted.address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert arrived.wait(30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "edge-rag: cancelled"
    assert "Traceback" not in errors
    assert cancelled.wait(10)


def test_documents_are_listed_shown_and_deleted(scripted: ScriptedDaemon) -> None:
    record = documents_pb2.Document(
        id="d1", name="a.pdf", media_type="application/pdf", pages=2, chunks=3, size_bytes=9
    )

    def delete(request: documents_pb2.DeleteDocumentRequest, context: grpc.ServicerContext) -> Any:
        if request.document != "a.pdf":
            context.abort(grpc.StatusCode.NOT_FOUND, f"document {request.document!r} does not exist")
        return documents_pb2.DeleteDocumentResponse(document=record)

    scripted.script("List", lambda _, __: documents_pb2.ListDocumentsResponse(documents=[record]))
    scripted.script("Get", lambda _, __: documents_pb2.GetDocumentResponse(document=record, text="Stored text."))
    scripted.script("Delete", delete)
    listed = scripted.run("docs", "list")
    assert listed.stdout == "d1  a.pdf  (application/pdf, 2 pages, 3 passages, 9 bytes)\n"
    assert scripted.json("docs", "list")["documents"][0]["id"] == "d1"
    assert scripted.run("docs", "show", "a.pdf", "--text").stdout == "Stored text.\n"
    assert "media_type: application/pdf" in scripted.run("docs", "show", "a.pdf").stdout
    shown = scripted.json("docs", "show", "a.pdf")
    assert (shown["document"]["name"], shown["text"]) == ("a.pdf", "Stored text.")
    deleted = scripted.run("docs", "delete", "gone.md", "a.pdf")
    assert (deleted.exit_code, deleted.stdout) == (4, "deleted  a.pdf\n")
    assert "'gone.md' does not exist" in deleted.stderr


def test_output_that_nobody_reads_is_no_traceback(scripted: ScriptedDaemon) -> None:
    scripted.script("Search", found)
    command = [sys.executable, "-m", "edge_rag.cli.main", "search", "oil", "--server", scripted.address]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writer)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr
