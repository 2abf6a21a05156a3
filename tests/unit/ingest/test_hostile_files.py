"""Each hostile file has the outcome that stands beside it, within its limits, and the next document is read."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from tests.support.hostile_files import HostileFile, hostile_files

_LIMITS = ParsingLimits(cpu_seconds=4, wall_seconds=40, memory_bytes=400 * 2**20)
_SECRET = "hunter2 was here"


class Canary:
    """A file that no document may be read to hold, and an address that nobody may call."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "canary"
        self.file.write_text(_SECRET)
        self.calls: list[str] = []
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                calls.append(self.path)
                self.send_response(404)
                self.end_headers()

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/canary"


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    canary = Canary(tmp_path_factory.mktemp("canary"))
    thread = threading.Thread(target=canary.server.serve_forever)
    thread.start()
    yield canary
    canary.server.shutdown()
    thread.join()
    canary.server.server_close()


@pytest.fixture(scope="module")
def files(canary: Canary) -> dict[str, HostileFile]:
    return hostile_files(str(canary.file), canary.url)


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    process = ParserProcess(_LIMITS)
    yield process
    process.close()


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmPeak:\s+(\d+) kB", status)
    assert found
    return int(found.group(1)) * 1024


@pytest.mark.parametrize("what", sorted(hostile_files()))
def test_a_hostile_file_has_the_expected_outcome(
    parser: ParserProcess, files: dict[str, HostileFile], canary: Canary, what: str
) -> None:
    hostile = files[what]
    if hostile.outcome:
        with pytest.raises(hostile.outcome, match=hostile.reason or "."):
            parser.read(hostile.name, "", hostile.content())
    else:
        assert _SECRET not in parser.read(hostile.name, "", hostile.content())[1].text
    assert parser.read("a.txt", "", b"Still here.")[1].text == "Still here."
    assert parser.pid is not None
    assert peak_bytes(parser.pid) <= _LIMITS.memory_bytes
    assert canary.calls == []
