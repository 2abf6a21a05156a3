"""A daemon without any settings: it quotes in many languages, refuses what a language model would write, and takes one
while it runs.
"""

import json
import shutil
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main
from tests.e2e.answers.test_asking import QUESTIONS, ask
from tests.e2e.support.running_daemon import GENERATOR, RunningDaemon, ingest, sample_documents, start_daemon, status_of
from tests.fixtures.makers.make_sample_answers import SAMPLE_ANSWERS, answers

MANY_LANGUAGES = {
    "main-switch.txt": "The main switch is set to 630 amperes. It is locked at night.",
    "druckbehälter.txt": "Das Sicherheitsventil öffnet bei 6 bar. Der Prüfer kommt jedes Jahr im März.",
    "水箱.txt": "水箱每年清洗两次。清洗用的软管放在仓库里。",
}
FREE = rag_pb2.ANSWER_MODE_FREE
FEW = rag_pb2.Sampling(max_tokens=8)


@pytest.fixture(scope="module")
def quoting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("quoting")
    with start_daemon(folder / "data", folder / "log", '[http]\naddress = "127.0.0.1:0"\n', models={}) as running:
        ingest(running.address, sample_documents())
        ingest(running.address, {name: text.encode() for name, text in MANY_LANGUAGES.items()}, "languages")
        yield running


def test_it_quotes_with_citations_and_says_what_is_not_there(quoting: RunningDaemon) -> None:
    answer = ask(quoting.address, rag_pb2.AskRequest(question=QUESTIONS[0]))
    assert "2,000" in answer.text
    assert answer.text == " ".join(text for *_, text in answer.citations)
    assert answer.finished.usage == rag_pb2.Usage()
    absent = ask(quoting.address, rag_pb2.AskRequest(question="Who won the chess championship of 1972?"))
    assert (absent.finished.reason, absent.citations) == (rag_pb2.FINISH_REASON_NOT_FOUND, ())


def test_the_answers_to_the_sample_questions_are_the_kept_ones(quoting: RunningDaemon) -> None:
    """A change that improves answers writes the file anew: ``python -m tests.fixtures.makers.make_sample_answers``."""
    kept = json.loads(SAMPLE_ANSWERS.read_text(encoding="utf-8"))
    assert len(kept) == 46
    assert answers(quoting.address) == kept


@pytest.mark.parametrize(
    ("question", "document", "quoted"),
    [
        ("To how many amperes is the main switch set?", "main-switch.txt", "The main switch is set to 630 amperes."),
        ("Wann öffnet das Sicherheitsventil?", "druckbehälter.txt", "Das Sicherheitsventil öffnet bei 6 bar."),
        ("水箱每年清洗几次？", "水箱.txt", "水箱每年清洗两次。"),
    ],
)
def test_it_quotes_in_the_language_of_document_and_question(
    quoting: RunningDaemon, question: str, document: str, quoted: str
) -> None:
    answer = ask(quoting.address, rag_pb2.AskRequest(question=question, collection="languages"))
    assert answer.text == quoted
    ((cited, start, end, text),) = answer.citations
    assert (cited, text) == (document, quoted)
    assert MANY_LANGUAGES[document][start:end] == quoted


GREASED = "The pump bearings must be greased every 2,000 operating hours or every three months, whichever comes first."


@pytest.mark.parametrize(
    "question",
    [
        "Wie oft müssen die Pumpenlager geschmiert werden?",
        "泵轴承多久需要润滑一次?",
        "Как часто нужно смазывать подшипники насоса?",
    ],
)
def test_a_question_in_another_language_than_the_documents_is_answered_from_them(
    quoting: RunningDaemon, question: str
) -> None:
    assert ask(quoting.address, rag_pb2.AskRequest(question=question)).text == GREASED


@pytest.mark.parametrize("question", ["Wer gewann die Fußballweltmeisterschaft 2014?", "Кто написал «Войну и мир»?"])
def test_what_documents_in_another_language_do_not_answer_is_not_found(quoting: RunningDaemon, question: str) -> None:
    absent = ask(quoting.address, rag_pb2.AskRequest(question=question))
    assert (absent.finished.reason, absent.citations) == (rag_pb2.FINISH_REASON_NOT_FOUND, ())


@pytest.mark.parametrize(
    "request_",
    [
        rag_pb2.AskRequest(question=QUESTIONS[0], mode=FREE),
        rag_pb2.AskRequest(question=QUESTIONS[0], mode=rag_pb2.ANSWER_MODE_CITE),
        rag_pb2.AskRequest(question=QUESTIONS[0], mode=FREE, regex="yes|no"),
        rag_pb2.AskRequest(question="zzz qqq", mode=FREE),
    ],
)
def test_what_a_model_would_write_is_refused_with_what_to_do(
    quoting: RunningDaemon, request_: rag_pb2.AskRequest
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        ask(quoting.address, request_)
    code, details = status_of(refused.value)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "edge-rag models add smollm2-135m" in details
    assert "edge-rag models use generator NAME" in details


def test_what_cannot_be_asked_is_not_offered(quoting: RunningDaemon) -> None:
    with urllib.request.urlopen(f"{quoting.http}/api/v1/ask", timeout=60) as response:
        options = json.load(response)
    assert options["modes"] == ["quote", "extract"]
    assert options["language_model"] is None


def test_status_names_the_models_and_no_generator(quoting: RunningDaemon) -> None:
    with grpc.insecure_channel(quoting.address) as channel:
        status = admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=30)
    assert [(model.role, model.name) for model in status.models] == [
        ("embedder", "multilingual-e5-small"),
        ("reranker", "multilingual-e5-small"),
    ]
    assert all("generator" not in item.name for item in status.memory.items)
    shown = CliRunner(env={"EDGE_RAG_SERVER": quoting.address}).invoke(main, ["status"])
    assert "generator    none: answers are quoted" in shown.stdout
    assert "kv cache" not in shown.stdout


def test_a_model_that_is_selected_writes_at_once(quoting: RunningDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_RAG_LISTEN", quoting.address)
    data = ("--data-dir", str(quoting.data_dir))
    shutil.copytree(GENERATOR, quoting.data_dir / "models" / "writer")
    selected = CliRunner().invoke(main, ["models", "use", "generator", "writer", *data, "--json"])
    assert json.loads(selected.stdout)["in_place"] is True
    with grpc.insecure_channel(quoting.address) as channel:
        *_, last = rag_pb2_grpc.RagStub(channel).Ask(
            rag_pb2.AskRequest(question=QUESTIONS[0], mode=FREE, sampling=FEW), timeout=60
        )
    assert last.finished.usage.generated_tokens > 0
