import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest, status_of


def refusal(address: str, request: rag_pb2.AskRequest) -> tuple[grpc.StatusCode, str]:
    with grpc.insecure_channel(address, options=(("grpc.max_send_message_length", -1),)) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=60))
    return status_of(refused.value)


def answers_still(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        events = list(rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question="How often?"), timeout=60))
    return events[-1].HasField("finished")


def test_a_question_longer_than_the_models_context_is_refused_with_the_numbers(daemon: RunningDaemon) -> None:
    asked = "How often must the pump bearings be greased? " * 180
    request = rag_pb2.AskRequest(question=asked, mode=rag_pb2.ANSWER_MODE_FREE)
    code, details = refusal(daemon.address, request)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "tokens" in details


def test_a_passed_deadline_starts_no_work(daemon: RunningDaemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            list(rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question="How often?"), timeout=1e-4))
    assert status_of(refused.value)[0] == grpc.StatusCode.DEADLINE_EXCEEDED


def encrypted_pdf(folder: Path) -> bytes:
    from fpdf import FPDF
    from pypdf import PdfReader, PdfWriter

    plain = FPDF()
    plain.add_page()
    plain.set_font("Helvetica")
    plain.cell(text="The valve opens at 3 bar.")
    plain.output(str(folder / "plain.pdf"))
    writer = PdfWriter(clone_from=PdfReader(folder / "plain.pdf"))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(folder / "locked.pdf")
    return (folder / "locked.pdf").read_bytes()


def test_bad_documents_are_rejected_with_a_reason_and_the_good_ones_among_them_are_taken(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    outcomes = ingest(
        daemon.address,
        {
            "good-1.txt": b"The north valve opens at 3 bar.",
            "broken.pdf": b"%PDF-1.7\n1 0 obj << /Type /Catalog",
            "locked.pdf": encrypted_pdf(tmp_path),
            "program.txt": bytes(range(256)) * 40,
            "empty.md": b"",
            "good-2.txt": b"The south valve opens at 4 bar.",
        },
        collection="mixed",
    )
    rejected, added = documents_pb2.INGEST_STATUS_REJECTED, documents_pb2.INGEST_STATUS_ADDED
    assert [outcome.status for outcome in outcomes] == [added, rejected, rejected, rejected, rejected, added]
    reasons = {outcome.name: outcome.reason for outcome in outcomes}
    assert "password" in reasons["locked.pdf"]
    assert all(reasons[name] for name in ("broken.pdf", "program.txt", "empty.md"))
    with grpc.insecure_channel(daemon.address) as channel:
        request = documents_pb2.ListDocumentsRequest(collection="mixed")
        names = {document.name for document in documents_pb2_grpc.DocumentsStub(channel).List(request).documents}
    assert names == {"good-1.txt", "good-2.txt"}


def serve_once(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edge_rag.cli.main", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )


def test_a_data_directory_that_another_daemon_holds_is_named(daemon: RunningDaemon) -> None:
    second = serve_once("--listen", "127.0.0.1:0", "--data-dir", str(daemon.data_dir))
    assert second.returncode != 0
    assert str(daemon.data_dir) in second.stderr
    assert str(daemon.process.pid) in second.stderr
    assert "Traceback" not in second.stderr
    assert answers_still(daemon.address)


def test_a_truncated_model_file_is_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(ROOT / "models", models)
    weights = max((models / "multilingual-e5-small").iterdir(), key=lambda path: path.stat().st_size)
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size // 2)
    config = tmp_path / "edge-rag.toml"
    config.write_text(f'[models]\ndirectory = "{models}"\n')
    refused = serve_once("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--config", str(config))
    assert refused.returncode != 0
    assert weights.name in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_document_that_is_announced_too_large_is_rejected_by_name_and_the_next_one_taken(
    daemon: RunningDaemon,
) -> None:
    def header(name: str, size: int) -> documents_pb2.IngestRequest:
        said = documents_pb2.IngestRequest.Header(collection="announced", name=name, size_bytes=size)
        return documents_pb2.IngestRequest(header=said)

    text = b"Grease the bearings."
    parts = [
        header("huge.txt", 2**31),
        documents_pb2.IngestRequest(content=text),
        header("small.txt", len(text)),
        documents_pb2.IngestRequest(content=text),
        header("last.txt", 2**31),
    ]
    with grpc.insecure_channel(daemon.address) as channel:
        outcomes = documents_pb2_grpc.DocumentsStub(channel).Ingest(iter(parts), timeout=60).outcomes
    rejected, added = documents_pb2.INGEST_STATUS_REJECTED, documents_pb2.INGEST_STATUS_ADDED
    assert [(outcome.name, outcome.status) for outcome in outcomes] == [
        ("huge.txt", rejected),
        ("small.txt", added),
        ("last.txt", rejected),
    ]
    assert "2,147,483,648 bytes" in outcomes[0].reason
    assert "ingest.document_mib" in outcomes[0].reason
