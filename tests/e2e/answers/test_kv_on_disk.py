"""A daemon's KV pages on disk: used after a restart, gone with the text they were computed from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2
from tests.e2e.answers.test_asking import QUESTIONS, ask
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents

ASKED = rag_pb2.AskRequest(
    question=QUESTIONS[0], mode=rag_pb2.ANSWER_MODE_FREE, sampling=rag_pb2.Sampling(max_tokens=24)
)


def kept(data: Path) -> list[Path]:
    return [path for path in (data / "kv" / "pages").rglob("*") if path.is_file()]


def delete(address: str, document: str) -> None:
    with grpc.insecure_channel(address) as channel:
        request = documents_pb2.DeleteDocumentRequest(collection="default", document=document)
        documents_pb2_grpc.DocumentsStub(channel).Delete(request, timeout=60)


def test_hot_pages_are_used_after_a_restart_and_go_with_their_text(start: Callable[..., RunningDaemon]) -> None:
    daemon = start()
    ingest(daemon.address, sample_documents())
    before = [ask(daemon.address, ASKED) for _ in range(3)]
    assert daemon.stop() == 0
    assert kept(daemon.data_dir)

    daemon = start(daemon.data_dir)
    after = ask(daemon.address, ASKED)
    assert after.finished.usage.cached_prompt_tokens > 0
    assert {answer.text for answer in (*before, after)} == {after.text}
    delete(daemon.address, after.passages[0][0])
    assert not kept(daemon.data_dir)
    assert daemon.stop() == 0
    assert not kept(daemon.data_dir)


def test_no_page_is_used_after_a_kill_between_removing_text_and_its_pages(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    daemon = start()
    ingest(daemon.address, sample_documents())
    answers = [ask(daemon.address, ASKED) for _ in range(3)]
    assert daemon.stop() == 0
    saved = {path: path.read_bytes() for path in kept(daemon.data_dir)}
    assert saved

    daemon = start(daemon.data_dir)
    delete(daemon.address, answers[0].passages[0][0])
    daemon.process.kill()
    daemon.process.wait(30)
    for path, data in saved.items():  # as if they had not been removed by then
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    daemon = start(daemon.data_dir)
    assert not kept(daemon.data_dir)
    assert ask(daemon.address, ASKED).finished.usage.cached_prompt_tokens == 0


def test_nothing_is_kept_where_the_settings_say_so(start: Callable[..., RunningDaemon]) -> None:
    daemon = start(config="[generator]\nkv_disk_mib = 0\n")
    ingest(daemon.address, sample_documents())
    for _ in range(3):
        ask(daemon.address, ASKED)
    assert daemon.stop() == 0
    assert not (daemon.data_dir / "kv").exists()
