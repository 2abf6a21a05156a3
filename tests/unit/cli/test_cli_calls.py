from __future__ import annotations

import json
import os
import pty
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
from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import admin_pb2, common_pb2, documents_pb2, rag_pb2
from edge_rag.cli.main import main
from edge_rag.cli.output.terminal import printable
from tests.unit.cli.scripted_daemon import Handler, ScriptedDaemon, answering, finished, refusing

ROOT = Path(__file__).parents[3]


def found(request: rag_pb2.SearchRequest, _: Any) -> rag_pb2.SearchResponse:
    hit = common_pb2.Passage(document="log.txt", start=5, end=8, text="oil", score=1.5, context=["Log"])
    return rag_pb2.SearchResponse(hits=[hit], stages=[rag_pb2.StageTime(stage="retriever", compute_seconds=0.5)])


def test_an_answer_is_printed_with_its_sources_and_times_apart(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("Every 2,000 hours."))
    result = runner.invoke(main, ["ask", "-v", "how often?", "--server", scripted.address])
    assert result.exit_code == 0
    assert result.stdout == "Every 2,000 hours.\n\n[1] manual.pdf, page 3, Pumps › Standby pump\n"
    assert "retriever 500 ms (+250 ms queued) · generator 1.50 s · first token after 750 ms" in result.stderr


def test_times_are_for_who_asks_for_them_and_quiet_leaves_the_answer_alone(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    scripted.script("Ask", answering("Every 2,000 hours."))
    piped = runner.invoke(main, ["ask", "how often?", "--server", scripted.address])
    assert piped.stderr == "\nquoted from the documents\n"
    quiet = runner.invoke(main, ["ask", "--quiet", "how often?", "--server", scripted.address])
    assert (quiet.stdout, quiet.stderr) == (piped.stdout, "")
    scripted.script("Search", found)
    assert runner.invoke(main, ["search", "oil", "--server", scripted.address]).stderr == ""
    assert "500 ms" in runner.invoke(main, ["search", "-v", "oil", "--server", scripted.address]).stderr


def test_a_sentence_that_no_document_supports_is_plainly_so(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    def handler(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Every year."))
        reason = rag_pb2.UNSUPPORTED_REASON_NO_SOURCE
        yield rag_pb2.AskResponse(unsupported=rag_pb2.Unsupported(answer_start=0, answer_end=11, reason=reason))
        yield finished()

    scripted.script("Ask", handler)
    for_people = runner.invoke(main, ["ask", "how often?", "--mode", "cite", "--server", scripted.address])
    assert for_people.stdout == "Every year. [no source]\n"
    scripted.script("Ask", handler)
    for_machines = runner.invoke(main, ["ask", "how often?", "--json", "--server", scripted.address])
    answer = json.loads(for_machines.stdout)
    assert answer["answer"] == "Every year."
    assert answer["unsupported"] == [{"start": 0, "end": 11, "text": "Every year.", "reason": "no_source"}]


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


def test_a_quote_in_another_language_than_the_question_says_so(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    command = ["ask", "Wie oft?", "--server", scripted.address]
    scripted.script("Ask", in_languages("de", "ar", "de", None, "sw"))
    sources = runner.invoke(main, command).stdout.splitlines()[-4:]
    assert [line.partition("page 3")[2] for line in sources] == [" (العربية)", "", "", " (sw)"]
    scripted.script("Ask", in_languages(None, "ar"))
    assert runner.invoke(main, command).stdout.endswith("page 3\n")

    scripted.script("Ask", in_languages("de", "ar"))
    answer = json.loads(runner.invoke(main, [*command, "--json"]).stdout)
    assert (answer["question_language"], answer["citations"][0]["language"]) == ("de", "ar")


def test_the_note_on_a_sentence_without_source_is_in_the_language_of_the_question(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    scripted.script("Ask", in_languages("de", "ar"))
    assert "تُشحم المحامل. [ohne Quelle]\n" in runner.invoke(main, ["ask", "?", "--server", scripted.address]).stdout


def test_a_source_is_named_by_page_and_headings_and_else_by_characters(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    def handler(_: Any, __: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="Pumps\nGrease it."))
        heading = rag_pb2.Citation(document="notes.md", end=5, text="Pumps", answer_end=5, context=True)
        yield rag_pb2.AskResponse(citation=heading)
        for document, section in (("notes.md", ["Pumps"]), ("notes.md", ["Pumps"]), ("log.html", [])):
            source = rag_pb2.Citation(document=document, start=6, end=16, text="Grease it.", section=section)
            yield rag_pb2.AskResponse(citation=source)
        yield finished()

    scripted.script("Ask", handler)
    assert runner.invoke(main, ["ask", "?", "--server", scripted.address]).stdout.splitlines()[-2:] == [
        "[1] notes.md, Pumps",
        "[2] log.html, characters 6-16",
    ]


def test_names_from_right_to_left_keep_their_place_on_a_terminal_and_are_unchanged_elsewhere(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    command = ["ask", "Wie oft?", "--server", scripted.address]
    scripted.script("Ask", in_languages("de", "ar"))
    assert "[1] دليل 0.pdf, page 3 (العربية)\n" in runner.invoke(main, command).stdout

    scripted.script("Ask", in_languages("de", "ar"))
    ours, theirs = pty.openpty()
    program = "from edge_rag.cli.main import main; main()"
    with os.fdopen(ours, encoding="utf-8") as shown, os.fdopen(theirs, "w") as terminal:
        asked = [sys.executable, "-c", program, *command]
        subprocess.run(asked, stdout=terminal, stderr=subprocess.DEVNULL, check=True)
        lines = [shown.readline().rstrip() for _ in range(3)]
    isolated = "[1] \u2068دليل\u2069 0.pdf, page 3 (\u2068العربية\u2069)"
    assert lines == ["تُشحم المحامل. [ohne Quelle]", "", isolated]


def test_what_was_searched_for_is_told_where_it_is_not_the_question(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    def searching(request: rag_pb2.SearchRequest, _: Any) -> rag_pb2.SearchResponse:
        return rag_pb2.SearchResponse(standalone_question="how often are bearings greased?")

    def asking(request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(standalone_question="how often are bearings greased?"))
        yield finished()

    scripted.script("Search", searching)
    scripted.script("Ask", asking)
    for command in ("ask", "search"):
        told = [
            runner.invoke(main, [command, question, "--server", scripted.address]).stderr
            for question in ("how often?", "how often are bearings greased?")
        ]
        assert "searched for: how often are bearings greased?\n" in told[0]
        assert "searched for" not in told[1]


def test_the_corrected_question_is_told(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    def searching(request: rag_pb2.SearchRequest, _: Any) -> rag_pb2.SearchResponse:
        return rag_pb2.SearchResponse(standalone_question="grese them pumps?", did_you_mean="grease them pumps?")

    def asking(request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(did_you_mean="grease them pumps?"))
        yield finished()

    scripted.script("Search", searching)
    scripted.script("Ask", asking)
    for command in ("ask", "search"):
        asked = [command, "grese them pmps?", "--server", scripted.address]
        assert "did you mean: grease them pumps?\n" in runner.invoke(main, asked).stderr
        shown = json.loads(runner.invoke(main, [*asked, "--json"]).stdout)
        assert shown["did_you_mean"] == "grease them pumps?"
        assert shown["question"] == "grese them pmps?"


def test_ask_as_json_has_its_stable_shape(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("Every 2,000 hours."))
    result = runner.invoke(
        main, ["ask", "how often?", "--json", "--request-id", "ticket-17", "--server", scripted.address]
    )
    assert json.loads(result.stdout) == {
        "request_id": "ticket-17",
        "question": "how often?",
        "question_language": None,
        "standalone_question": None,
        "did_you_mean": None,
        "mode": "quote",
        "model": None,
        "answer": "Every 2,000 hours.",
        "citations": [
            {
                "passage": 0,
                "document": "manual.pdf",
                "page": 3,
                "start": 10,
                "end": 28,
                "text": "Every 2,000 hours.",
                "answer_start": 0,
                "answer_end": 18,
                "language": None,
                "section": ["Pumps", "Standby pump"],
                "context": False,
                "field": None,
                "line": None,
            }
        ],
        "unsupported": [],
        "given_to_model": [],
        "finish_reason": "stop",
        "usage": {
            "prompt_tokens": 90,
            "cached_prompt_tokens": 0,
            "copied_prompt_tokens": 0,
            "generated_tokens": 7,
            "forced_tokens": 5,
            "model_steps": 3,
        },
        "timings": {
            "first_token_s": 0.75,
            "stages": [
                {"stage": "retriever", "queue_s": 0.25, "compute_s": 0.5},
                {"stage": "generator", "queue_s": 0.0, "compute_s": 1.5},
            ],
        },
        "nearest": [],
        "prompt_passages": None,
        "conflicts": [],
    }
    assert result.stderr == ""


def test_search_as_json_has_its_stable_shape(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Search", found)
    result = runner.invoke(main, ["search", "oil", "--json", "--server", scripted.address])
    assert json.loads(result.stdout) == {
        "question": "oil",
        "standalone_question": None,
        "did_you_mean": None,
        "hits": [
            {
                "document_id": "",
                "document": "log.txt",
                "page": None,
                "start": 5,
                "end": 8,
                "text": "oil",
                "score": 1.5,
                "context": ["Log"],
                "metadata": {},
                "duplicates": [],
            }
        ],
        "timings": {"stages": [{"stage": "retriever", "queue_s": 0.0, "compute_s": 0.5}]},
    }


def test_search_for_people_shows_where_each_hit_is_from(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Search", found)
    result = runner.invoke(main, ["search", "oil", "--server", scripted.address])
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
    runner: CliRunner, scripted: ScriptedDaemon, code: grpc.StatusCode, exit_code: int
) -> None:
    scripted.script("Search", refusing(code, "because of the weather", (("grpc-retry-pushback-ms", "3600000"),)))
    for_people = runner.invoke(main, ["search", "oil", "--server", scripted.address])
    assert for_people.exit_code == exit_code
    assert for_people.stdout == ""
    assert "because of the weather" in for_people.stderr
    for_machines = runner.invoke(main, ["search", "oil", "--json", "--server", scripted.address])
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


def test_document_text_cannot_steer_the_terminal(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("\x1b]0;owned\x07\u202eplain\ttext\n"))
    result = runner.invoke(main, ["ask", "how?", "--server", scripted.address])
    assert result.stdout.startswith("\\x1b]0;owned\\x07\\u202eplain\ttext\n")
    assert printable("a\r\nb\x9b") == "a\nb\\x9b"


def test_invisible_text_is_escaped_in_json_and_means_the_same(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    hidden = "\u202eplain\u200e \U000e0041\U000e0042 \u2066x\u2069 pay\u200dpal می\u200cخواهم \x9b"
    scripted.script("Ask", answering(hidden))
    result = runner.invoke(main, ["ask", "how?", "--server", scripted.address, "--json"])
    assert json.loads(result.stdout)["answer"] == hidden
    assert {character for character in result.stdout if not character.isprintable()} == {"\n", "\u200c"}
    assert r"\u202eplain\u200e \udb40\udc41\udb40\udc42 \u2066x\u2069 pay\u200dpal" in result.stdout


def test_streamed_text_is_escaped_as_a_whole(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering("می\u200cخو"))  # in two parts, of which the second begins with the joiner
    result = runner.invoke(main, ["ask", "how?", "--server", scripted.address])
    assert result.stdout.startswith("می\u200cخو\n")


def test_questions_of_a_file_are_answered_in_order_whoever_is_done_first(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    last_arrived = threading.Event()

    def answer(request: rag_pb2.AskRequest, _: Any) -> Iterator[rag_pb2.AskResponse]:
        if request.question == "third?":
            last_arrived.set()
        elif request.question == "first?":
            last_arrived.wait(30)
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=request.question.upper()))
        yield finished()

    scripted.script("Ask", answer)
    arguments = ["ask", "--questions", "-", "--concurrency", "3", "--server", scripted.address]
    result = runner.invoke(main, arguments, input="\ufefffirst?\n\n  second? \r\n \nthird?")
    assert result.exit_code == 0
    assert [json.loads(line)["answer"] for line in result.stdout.splitlines()] == ["FIRST?", "SECOND?", "THIRD?"]


def test_a_question_that_fails_is_its_own_line_and_the_others_are_answered(
    runner: CliRunner, scripted: ScriptedDaemon, tmp_path: Path
) -> None:
    def search(request: rag_pb2.SearchRequest, context: grpc.ServicerContext) -> rag_pb2.SearchResponse:
        if request.query == "bad":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such collection")
        return found(request, context)

    scripted.script("Search", search)
    file = tmp_path / "questions.txt"
    file.write_bytes(b"good\nbad\nna\xefve\ngood\n")
    result = runner.invoke(main, ["search", "--questions", str(file), "--server", scripted.address])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [line["question"] for line in lines] == ["good", "bad", "na�ve", "good"]
    shape = ["did_you_mean", "hits", "question", "standalone_question", "timings"]
    assert [sorted(line) for line in lines[::3]] == [shape] * 2
    assert lines[1]["error"] == {"code": "NOT_FOUND", "message": "no such collection"}
    assert lines[2]["error"]["message"] == f"{file}, line 3: not valid UTF-8 at byte 3 (0xef)"
    assert "2 of 4 questions failed" in result.stderr


def test_a_question_of_ten_megabytes_gets_a_clear_error_about_its_length(
    runner: CliRunner, scripted: ScriptedDaemon
) -> None:
    result = runner.invoke(main, ["ask", "--questions", "-", "--server", scripted.address], input="why " * 2_621_440)
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


def test_documents_are_listed_shown_and_deleted(runner: CliRunner, scripted: ScriptedDaemon) -> None:
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
    at = ["--server", scripted.address]
    listed = runner.invoke(main, ["docs", "list", *at])
    assert listed.stdout == "d1  a.pdf  (application/pdf, 2 pages, 3 passages, 9 bytes)\n"
    assert json.loads(runner.invoke(main, ["docs", "list", "--json", *at]).stdout)["documents"][0]["id"] == "d1"
    assert runner.invoke(main, ["docs", "show", "a.pdf", "--text", *at]).stdout == "Stored text.\n"
    assert "media_type: application/pdf" in runner.invoke(main, ["docs", "show", "a.pdf", *at]).stdout
    shown = json.loads(runner.invoke(main, ["docs", "show", "a.pdf", "--json", *at]).stdout)
    assert (shown["document"]["name"], shown["text"]) == ("a.pdf", "Stored text.")
    deleted = runner.invoke(main, ["docs", "delete", "gone.md", "a.pdf", *at])
    assert (deleted.exit_code, deleted.stdout) == (4, "deleted  a.pdf\n")
    assert "'gone.md' does not exist" in deleted.stderr


def test_status_shows_models_queues_batch_and_collections(runner: CliRunner, scripted: ScriptedDaemon) -> None:
    report = admin_pb2.GetStatusResponse(
        version="0.1.0",
        state=admin_pb2.DAEMON_STATE_SERVING,
        address=scripted.address,
        data_directory="/var/lib/edge-rag",
        profile="cpu-x86",
        models=[
            admin_pb2.Model(
                role="generator",
                name="quoter",
                detail="paged, int8 kv",
                placement=admin_pb2.Placement(
                    wanted=admin_pb2.EXECUTION_PROVIDER_CUDA,
                    used=admin_pb2.EXECUTION_PROVIDER_CPU,
                    reason="no driver",
                    precision=admin_pb2.PRECISION_MODEL,
                ),
            )
        ],
        stages=[admin_pb2.Stage(name="retriever", waiting=1, capacity=256, running=2, completed=40, refused=3)],
        engine=admin_pb2.Engine(
            slots_busy=2, slots=8, pages_used=9, pages=64, page_tokens=16, kv_bytes=1 << 20, pages_cached=5
        ),
        collections=[admin_pb2.CollectionSize(name="default", documents=11)],
        memory=admin_pb2.PlannedMemory(
            budget_bytes=512 << 20, shrink_steps=1, items=[admin_pb2.MemoryItem(name="KV pages", bytes=51 << 20)]
        ),
        indexes=[
            admin_pb2.VectorIndex(collection="default", kind=admin_pb2.INDEX_KIND_EXACT, vectors=40),
            admin_pb2.VectorIndex(
                collection="large",
                kind=admin_pb2.INDEX_KIND_SEGMENT,
                vectors=90_000,
                unindexed=12,
                size_bytes=33 << 20,
                recall=0.981,
                built_at=Timestamp(seconds=1_777_638_600),
                build_seconds=20,
                pending=True,
            ),
        ],
    )
    scripted.script("GetStatus", lambda _, __: report)
    result = runner.invoke(main, ["status", "--wait", "30", "--server", scripted.address])
    assert result.exit_code == 0
    assert "generator    quoter, paged, int8 kv; on cpu instead of cuda: no driver\n" in result.stdout
    assert "retriever    2 running, 1 of 256 waiting, 40 done, 3 refused" in result.stdout
    assert "2 of 8 slots" in result.stdout
    assert "memory       51 of 512 MiB planned, reduced 1 times to fit: KV pages 51\n" in result.stdout
    assert "9 of 64 pages of 16 tokens held, 5 cached, 1.0 MiB" in result.stdout
    assert "collections  default (11)" in result.stdout
    assert "index        default: exact, 40 vectors\n" in result.stdout
    assert (
        "large: ivf-sq8, 90000 vectors, 12 unindexed, 33.0 MiB, recall@10 0.981, built 2026-05-01 12:30"
        in result.stdout
    )
    assert ", rebuilding\nbackup       none yet" in result.stdout
    as_json = json.loads(runner.invoke(main, ["status", "--json", "--server", scripted.address]).stdout)
    assert as_json["state"] == "serving"
    assert as_json["collections"] == {"default": 11}
    assert as_json["memory"] == {
        "budget_bytes": 512 << 20,
        "planned_bytes": 51 << 20,
        "shrink_steps": 1,
        "items": [{"name": "KV pages", "bytes": 51 << 20, "detail": ""}],
    }
    assert as_json["models"] == [
        {
            "role": "generator",
            "name": "quoter",
            "detail": "paged, int8 kv",
            "execution_provider": "cpu",
            "wanted_provider": "cuda",
            "reason": "no driver",
            "precision": "model",
        }
    ]
    assert [(index["collection"], index["kind"], index["recall"]) for index in as_json["indexes"]] == [
        ("default", "exact", None),
        ("large", "ivf-sq8", 0.981),
    ]
    assert as_json["engine"]["slots_busy"] == 2


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
