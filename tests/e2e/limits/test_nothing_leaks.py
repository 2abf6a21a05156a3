"""Marked words of questions, documents, formats, filters and secrets are in nothing that a daemon tells of itself."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main
from edge_rag.client import Client
from tests.e2e.support.collector import serving
from tests.e2e.support.running_daemon import RunningDaemon, ingest

WORD = re.compile(rb"zq[a-z]+\d+", re.IGNORECASE)
"""What every marked word is like; nothing else is."""


def marked(kind: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"zq{kind}{number}"


QUESTIONS, DOCUMENTS, FORMATS, METADATA = (marked(kind) for kind in ("question", "document", "format", "meta"))


def sentence(words: Iterator[str]) -> str:
    return f"The {next(words)} valve of the {next(words)} pump opens at 6 bar."


def documents() -> dict[str, bytes]:
    """Good ones, and ones that parsers stumble over in the middle."""
    plain = "\n\n".join(sentence(DOCUMENTS) for _ in range(40))
    table = f"<html><body><h1>{next(DOCUMENTS)}</h1><p>{sentence(DOCUMENTS)}<table><tr><td>{next(DOCUMENTS)}"
    return {
        "good.md": f"---\ntitle: {next(METADATA)}\n---\n# {next(DOCUMENTS)}\n\n{plain}".encode(),
        "page.html": table.encode(),
        "broken.md": f"---\ntitle: [{next(METADATA)}\n---\n{sentence(DOCUMENTS)}".encode(),
        "broken.pdf": f"%PDF-1.7\n1 0 obj\n({sentence(DOCUMENTS)})\nendobj".encode(),
        "broken.docx": b"PK\x03\x04" + sentence(DOCUMENTS).encode(),
        "broken.eml": f"Subject: {next(DOCUMENTS)}\nContent-Type: multipart/mixed\n\n{plain}".encode(),
        "broken.csv": f'a,b\n"{next(DOCUMENTS)}'.encode() + b"\x00\xff\xfe",
        "deep.json": (b'{"a":' * 3000) + sentence(DOCUMENTS).encode(),
        "broken.rtf": rb"{\rtf1 \u99999999 " + sentence(DOCUMENTS).encode(),
        "bad.txt": sentence(DOCUMENTS).encode("utf-16") + b"\xd8",
    }


def asked() -> Iterator[tuple[rag_pb2.AskRequest, float]]:
    """Questions, and how long they may take: answered, refused for every field, cut off."""
    free = rag_pb2.ANSWER_MODE_FREE
    few = rag_pb2.Sampling(max_tokens=8)
    for mode in (rag_pb2.ANSWER_MODE_QUOTE, rag_pb2.ANSWER_MODE_CITE, free):
        yield rag_pb2.AskRequest(question=sentence(QUESTIONS), mode=mode, sampling=few), 60
    question = sentence(QUESTIONS)
    yield rag_pb2.AskRequest(question=question * 300, mode=free), 60
    yield rag_pb2.AskRequest(question=question, mode=free, sampling=rag_pb2.Sampling(max_tokens=8000)), 60
    yield rag_pb2.AskRequest(question=question, sampling=rag_pb2.Sampling(stop=[next(FORMATS)] * 20)), 60
    yield rag_pb2.AskRequest(question=question, mode=free, regex=f"({next(FORMATS)}"), 60
    yield rag_pb2.AskRequest(question=question, mode=free, regex=f"(?<={next(FORMATS)})a"), 60
    yield rag_pb2.AskRequest(question=question, mode=free, json_schema=f'{{"type": "{next(FORMATS)}"}}'), 60
    yield rag_pb2.AskRequest(question=question, mode=free, json_schema=f'{{"{next(FORMATS)}'), 60
    yield rag_pb2.AskRequest(question=question, mode=free, json_schema=f'{{"enum": ["{next(FORMATS)}"]}}'), 60
    yield rag_pb2.AskRequest(question=question, request_id=f"no spaces {next(FORMATS)}"), 60
    yield rag_pb2.AskRequest(question=f"{next(QUESTIONS)}\ud7ff\x00\u2028 \u202e{next(QUESTIONS)}"), 60
    yield rag_pb2.AskRequest(question=question, mode=free, sampling=rag_pb2.Sampling(max_tokens=400)), 0.05
    yield rag_pb2.AskRequest(question=question), 0.0005


def use(address: str) -> None:
    given = documents()
    assert {outcome.status for outcome in ingest(address, given)} >= {documents_pb2.INGEST_STATUS_ADDED}
    with grpc.insecure_channel(address) as channel:
        rag, library = rag_pb2_grpc.RagStub(channel), documents_pb2_grpc.DocumentsStub(channel)
        for request, timeout_s in asked():
            try:
                list(rag.Ask(request, timeout=timeout_s))
            except grpc.RpcError:
                continue
        for query in (sentence(QUESTIONS), sentence(QUESTIONS) * 300):
            try:
                rag.Search(rag_pb2.SearchRequest(query=query, explain=True), timeout=60)
            except grpc.RpcError:
                continue
        with Client(address) as client:
            next(iter(client.ask(sentence(QUESTIONS))))

        def parts() -> Iterator[documents_pb2.IngestRequest]:
            for name, content in given.items():
                yield documents_pb2.IngestRequest(header=documents_pb2.IngestRequest.Header(name=f"job-{name}"))
                yield documents_pb2.IngestRequest(content=content)

        started = list(library.StartIngest(parts(), timeout=60))
        list(library.WatchJob(documents_pb2.WatchJobRequest(job_id=started[0].job.id), timeout=120))


def run_out_of_time(running: RunningDaemon) -> None:
    """Asks until the daemon itself notices that the time is up: its transport may do so first, and cancels the call."""
    sampling = rag_pb2.Sampling(max_tokens=400)
    with grpc.insecure_channel(running.address) as channel:
        for _ in range(100):
            if b"DEADLINE_EXCEEDED" in running.log.read_bytes():
                return
            request = rag_pb2.AskRequest(question=sentence(QUESTIONS), mode=rag_pb2.ANSWER_MODE_FREE, sampling=sampling)
            with suppress(grpc.RpcError):
                list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=0.05))


def told(address: str, port: int) -> bytes:
    with grpc.insecure_channel(address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        replies = [admin.GetStatus(admin_pb2.GetStatusRequest()), admin.GetUsage(admin_pb2.GetUsageRequest())]
        replies += list(admin.ListAuditEvents(admin_pb2.ListAuditEventsRequest()))
    metrics: bytes = urlopen(f"http://127.0.0.1:{port}/metrics").read()
    return b"".join(reply.SerializeToString() for reply in replies) + metrics


def test_no_word_of_a_question_or_a_document_is_told(start: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    audit = tmp_path / "audit.jsonl"
    with serving() as collector:
        running = start(
            config=f'[log]\nlevel = "debug"\nformat = "json"\n[metrics]\nport = {port}\n'
            f'[audit]\nfile = {json.dumps(str(audit))}\n[traces]\nendpoint = "{collector.endpoint}"\n'
        )
        use(running.address)
        run_out_of_time(running)
        shown = told(running.address, port)
        assert running.stop() == 0
    log = running.log.read_bytes()
    for name, content in {
        "log": log,
        "audit file": audit.read_bytes(),
        "traces": collector.bodies,
        "status, trail, usage, metrics": shown,
    }.items():
        assert len(content) > 1000, f"{name}: hardly anything was told"
        assert WORD.findall(content) == [], f"in the {name}"
    lines = [json.loads(line) for line in log.decode().splitlines()]
    calls = [line for line in lines if line["event"] == "call"]
    assert {"OK", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION"} <= {c["status"] for c in calls}
    of_calls = [line for line in lines if line["event"] in ("call", "question", "search", "call failed")]
    assert all(len(line["request_id"]) == 32 for line in of_calls)
    questions = [line for line in lines if line["event"] == "question"]
    assert questions
    assert all("question" not in line and line["characters"] > 0 for line in questions)


def test_text_is_in_the_log_where_it_is_asked_for(start: Callable[..., RunningDaemon]) -> None:
    running = start(config='[log]\nlevel = "debug"\ntext = true\n')
    word = next(QUESTIONS)
    with grpc.insecure_channel(running.address) as channel:
        rag = rag_pb2_grpc.RagStub(channel)
        with pytest.raises(grpc.RpcError):
            list(rag.Ask(rag_pb2.AskRequest(question=word), timeout=60))
    assert running.stop() == 0
    assert word in running.log.read_text()


def test_tokens_and_keys_are_in_nothing_that_is_told(start: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    data = tmp_path / "data"
    runner = CliRunner()
    for arguments in (["tls", "init"], ["token", "create", "--name", "ward", "--roles", "reader"]):
        made = runner.invoke(main, [*arguments, "--data-dir", str(data), "--json"])
        assert made.exit_code == 0, made.output
    token = json.loads(made.stdout)["token"]
    audit = tmp_path / "audit.jsonl"
    running = start(
        data, config=f'[tls]\nalways = true\n[log]\nlevel = "debug"\n[audit]\nfile = {json.dumps(str(audit))}\n'
    )
    authority = (data / "tls" / "ca.pem").read_bytes()
    for shown in (token, token[:-4] + "beef", "Bearer nonsense"):
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(authority), grpc.access_token_call_credentials(shown)
        )
        with grpc.secure_channel(running.address, credentials) as channel:
            try:
                list(rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question="How often?"), timeout=30))
            except grpc.RpcError as refused:
                assert shown not in str(refused)
    assert running.stop() == 0
    told_everywhere = running.log.read_text() + (audit.read_text() if audit.exists() else "")
    _, _, secret = token.split("_", 2)
    assert "call" in told_everywhere
    for private in (token, secret[8:24], token[:-4] + "beef", "Bearer nonsense"):
        assert private not in told_everywhere
    for key in (data / "tls").rglob("*.key"):
        body = "".join(key.read_text().splitlines()[1:-1])
        assert body[10:60] not in told_everywhere.replace("\n", "")
