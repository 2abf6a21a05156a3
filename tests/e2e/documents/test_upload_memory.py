"""What clients send and leave unread costs the daemon no more memory than its plan has for messages."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import psutil
import pytest

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc
from edge_rag.client import Client
from edge_rag.storage.database import Database
from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon, status_of
from tests.e2e.support.secured_daemon import Box, edge_rag, token
from tests.unit.conftest import document_store, new_document

MIB = 1 << 20
LONG = "EDGE_RAG_SOAK_SECONDS" in os.environ
WRITERS, UPLOADS = 6, 18
UPLOAD_BYTES, TEXT_BYTES = (60 * MIB, 19 * MIB) if LONG else (8 * MIB, 8 * MIB)
READS, TEXT = 80, "The bearings are greased every 2,000 hours. " * (TEXT_BYTES // 44)
SPOOL_MIB = 2048 if LONG else 256
PIECE_BYTES = 256 << 10
CONFIG = """\
local_listen = "unix:{folder}/socket"
[tls]
always = true
[limits]
slow_client_seconds = 2
[ingest]
spool_mib = {spool_mib}
"""


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("writers")
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    names = [f"writer-{number}" for number in range(WRITERS)]
    tokens = {name: token(name, data, "--roles", "writer,reader") for name in names}
    with closing(Database(data / "documents.sqlite3")) as database:
        document_store(data, database).put(new_document("large.txt", TEXT))
    with start_daemon(data, folder / "log", CONFIG.format(folder=folder, spool_mib=SPOOL_MIB)) as running:
        yield Box(running, data, tokens)


@dataclass
class OpenUpload:
    """An upload that sends its bytes but the last one, which waits for ``complete``."""

    library: documents_pb2_grpc.DocumentsStub
    size: int
    announced: int
    completed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.call = self.library.Ingest.future(self._parts())

    def _parts(self) -> Iterator[documents_pb2.IngestRequest]:
        yield documents_pb2.IngestRequest(
            header=documents_pb2.IngestRequest.Header(name="open.txt", size_bytes=self.announced)
        )
        for start in range(0, self.size, PIECE_BYTES):
            yield documents_pb2.IngestRequest(content=bytes(min(PIECE_BYTES, self.size - start)))
        self.completed.wait()

    def end(self) -> None:
        self.call.cancel()  # type: ignore[no-untyped-call]
        self.completed.set()


def partial_bytes(data: Path) -> int:
    sizes = 0
    for path in (data / "spool").glob("*.part"):
        with suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes


def wait_until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    turn = threading.Event()
    while not reached():
        assert time.monotonic() < end
        turn.wait(0.02)


@contextmanager
def resident_growth(running: RunningDaemon) -> Iterator[list[int]]:
    """Appends the highest growth of the daemon's resident memory during the block, bytes."""
    growth: list[int] = []
    before = psutil.Process(running.process.pid).memory_info().rss
    # 5 resets the high-water mark (proc(5)).
    Path(f"/proc/{running.process.pid}/clear_refs").write_text("5")
    yield growth
    for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            growth.append(int(line.split()[1]) * 1024 - before)


def planned_for_messages(box: Box) -> int:
    with Client(f"unix:{box.data.parent}/socket") as client:
        return next(item.bytes for item in client.status().memory.items if item.name == "messages")


def test_open_uploads_are_on_disk_and_not_in_memory(
    writers: Box, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as opened, resident_growth(writers.running) as growth:
        uploads = []
        for number in range(UPLOADS):
            channel = opened.enter_context(writers.channel(f"writer-{number % WRITERS}"))
            library = documents_pb2_grpc.DocumentsStub(channel)
            uploads.append(OpenUpload(library, UPLOAD_BYTES, UPLOAD_BYTES + 1))
            opened.callback(uploads[-1].end)
        wait_until(lambda: partial_bytes(writers.data) >= UPLOADS * (UPLOAD_BYTES - PIECE_BYTES))

        for upload in uploads:
            upload.end()
        # A client that goes leaves nothing behind.
        wait_until(lambda: not list((writers.data / "spool").iterdir()))
    sent = UPLOADS * UPLOAD_BYTES // MIB
    record_property("measured", f"{sent:,} MiB of open uploads: resident memory +{growth[0] // MIB} MiB")
    assert growth[0] <= planned_for_messages(writers)


class DeafLine:
    """A line to the daemon that carries everything there, and back only what a handshake needs."""

    _BACK_BYTES = 16 << 10

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._daemon = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for each in (self._listening, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                daemon = socket.create_connection(self._daemon)
                self._sockets += [client, daemon]
                for ends in ((client, daemon, None), (daemon, client, self._BACK_BYTES)):
                    self._threads.append(threading.Thread(target=self._carry, args=ends))
                    self._threads[-1].start()

    def _carry(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        carried = 0
        with suppress(OSError):
            while (most is None or carried < most) and (data := source.recv(4096)):
                target.sendall(data)
                carried += len(data)


def calls_of(running: RunningDaemon, method: str) -> int:
    return sum(f"method={method}" in line for line in running.log.read_text().splitlines())


def warm_up(writers: Box) -> None:
    """Reads the large text: threads and their connections to the database are other items of the plan."""
    request = documents_pb2.GetDocumentRequest(document="large.txt", start=0)
    with ExitStack() as opened:
        channels = [opened.enter_context(writers.channel(name)) for name in writers.tokens]
        libraries = [documents_pb2_grpc.DocumentsStub(channel) for channel in channels]
        for read in [libraries[number % WRITERS].Get.future(request, timeout=120) for number in range(READS)]:
            read.result()


def test_unread_answers_cost_the_memory_planned_for_messages(
    writers: Box, record_property: Callable[[str, object], None]
) -> None:
    warm_up(writers)
    request = documents_pb2.GetDocumentRequest(document="large.txt", start=0)
    before = calls_of(writers.running, "Get")
    with closing(DeafLine(writers.running.address)) as line, resident_growth(writers.running) as growth:
        deaf = replace(writers, running=replace(writers.running, address=line.address))
        with ExitStack() as opened:
            channels = [opened.enter_context(deaf.channel(name)) for name in writers.tokens]
            calls = [
                documents_pb2_grpc.DocumentsStub(channels[number % WRITERS]).Get.future(request, timeout=120)
                for number in range(READS)
            ]
            wait_until(lambda: calls_of(writers.running, "Get") - before >= READS)
            for call in calls:
                call.cancel()  # type: ignore[no-untyped-call]
    record_property("measured", f"{READS} unread reads of {len(TEXT) // MIB} MiB: +{growth[0] // MIB} MiB")
    assert growth[0] <= planned_for_messages(writers)


def test_a_long_text_is_read_in_ranges_and_not_at_once(writers: Box) -> None:
    with Client(f"unix:{writers.data.parent}/socket") as client:
        assert client.document("large.txt").text == TEXT
        assert client.document("large.txt", start=5 * MIB, end=5 * MIB + 9).text == TEXT[5 * MIB : 5 * MIB + 9]
        record = client.document("large.txt", end=0)
        assert (record.text, record.info.characters) == ("", len(TEXT))
    with writers.channel("writer-0") as channel, pytest.raises(grpc.RpcError) as refused:
        documents_pb2_grpc.DocumentsStub(channel).Get(documents_pb2.GetDocumentRequest(document="large.txt"))
    code, message = status_of(refused.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "ask for ranges" in message


def test_partial_files_of_a_killed_daemon_are_gone_after_the_next_start(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    killed = start(tmp_path / "data")
    with grpc.insecure_channel(killed.address) as channel:
        upload = OpenUpload(documents_pb2_grpc.DocumentsStub(channel), PIECE_BYTES, MIB)
        wait_until(lambda: len(list((tmp_path / "data" / "spool").iterdir())) == 1)
        killed.kill()
        upload.end()
    assert len(list((tmp_path / "data" / "spool").iterdir())) == 1

    start(tmp_path / "data")

    assert list((tmp_path / "data" / "spool").iterdir()) == []


def test_a_document_that_the_disk_has_no_room_for_is_refused_and_others_are_stored(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    # A limit on the size of files is a full disk to whoever writes beyond it.
    running = start(tmp_path / "data", prefix=["bash", "-c", 'ulimit -f 32768; exec "$@"', "bash"])

    with pytest.raises(grpc.RpcError) as refused:
        ingest(running.address, {"large.txt": bytes(33 * MIB)})

    code, message = status_of(refused.value)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "no space is left" in message
    assert list((tmp_path / "data" / "spool").iterdir()) == []
    (outcome,) = ingest(running.address, {"small.txt": b"The pump is primed by hand."})
    assert outcome.status == documents_pb2.INGEST_STATUS_ADDED
