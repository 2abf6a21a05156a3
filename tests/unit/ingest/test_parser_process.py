"""The parser process: hostile documents cost their own rejection and nothing else."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edge_rag.errors import BrokenDocument, DocumentTooLarge
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.messages import decode_answer
from edge_rag.ingest.parsing.sandbox.process import ParserProcess

_ENDLESS_WORK = b"<div>" * 3_000_000
_ANSWER = (
    '{"format": "text/plain", "title": %s, "text": "abc", "blocks": %s, "pages": %s, "metadata": "{}", "note": ""}'
)


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    process = ParserProcess(ParsingLimits())
    yield process
    process.close()


def opened(limits: ParsingLimits) -> Iterator[ParserProcess]:
    process = ParserProcess(limits)
    try:
        yield process
    finally:
        process.close()


def require_alive(parser: ParserProcess) -> None:
    media_type, parsed = parser.read("a.md", "", b"# Still here")
    assert (media_type, parsed.text) == ("text/markdown", "Still here")


def require_pid(parser: ParserProcess) -> int:
    assert parser.pid is not None
    return parser.pid


def wait_until_busy(pid: int) -> None:
    """Waits until the process has worked for 50 ms more than when asked, which only a document makes it do."""
    start = processor_ticks(pid)
    while processor_ticks(pid) < start + 5:
        os.sched_yield()


def processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_one_process_serves_many_documents(parser: ParserProcess) -> None:
    require_alive(parser)
    first = parser.pid
    for number in range(20):
        assert parser.read(f"{number}.txt", "", f"text {number}".encode())[1].text == f"text {number}"
    assert parser.pid == first


def test_a_document_over_the_size_limit_never_reaches_the_process() -> None:
    for parser in opened(ParsingLimits(max_bytes=10)):
        with pytest.raises(DocumentTooLarge, match="11 bytes"):
            parser.read("a.txt", "", b"x" * 11)
        assert parser.pid is None


def test_a_document_that_takes_too_long_is_refused_and_the_next_one_is_read() -> None:
    for parser in opened(ParsingLimits(wall_seconds=2)):
        require_alive(parser)
        with pytest.raises(DocumentTooLarge, match="longer than 2 s"):
            parser.read("slow.html", "", _ENDLESS_WORK)
        require_alive(parser)


def test_a_document_that_takes_too_much_processor_time_is_refused_and_the_next_one_is_read() -> None:
    for parser in opened(ParsingLimits(cpu_seconds=1)):
        require_alive(parser)
        with pytest.raises(DocumentTooLarge, match="more than 1 s of parsing, the most processor time for its size"):
            parser.read("slow.html", "", _ENDLESS_WORK)
        require_alive(parser)


def test_a_document_that_takes_too_much_memory_is_refused_and_the_next_one_is_read() -> None:
    for parser in opened(ParsingLimits(memory_bytes=100 * 2**20)):
        require_alive(parser)
        with pytest.raises((DocumentTooLarge, BrokenDocument)):
            parser.read("wide.txt", "", b"word \n\n" * 2_000_000)
        require_alive(parser)


def test_a_process_killed_in_mid_document_costs_that_document_only() -> None:
    for parser in opened(ParsingLimits()):
        require_alive(parser)
        victim = require_pid(parser)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(parser.read, "slow.html", "", _ENDLESS_WORK)
            wait_until_busy(victim)
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(BrokenDocument, match="signal 9"):
                reading.result()
        require_alive(parser)
        assert parser.pid != victim


def test_a_process_found_dead_is_replaced_before_the_next_document() -> None:
    for parser in opened(ParsingLimits()):
        require_alive(parser)
        victim = require_pid(parser)
        os.kill(victim, signal.SIGKILL)
        os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
        require_alive(parser)


def test_the_process_is_renewed_after_its_share_of_documents() -> None:
    for parser in opened(ParsingLimits(documents_per_process=2)):
        pids = []
        for _ in range(4):
            require_alive(parser)
            pids.append(parser.pid)
        assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_document_of_another_collection_is_read_by_another_process() -> None:
    for parser in opened(ParsingLimits()):
        pids = []
        for collection in ("manuals", "manuals", "contracts", "manuals"):
            parser.read("a.txt", "", b"text", collection)
            assert parser.collection == collection
            pids.append(parser.pid)
        assert pids[0] == pids[1]
        assert len(set(pids)) == 3


@pytest.mark.parametrize(
    ("size", "seconds"), [(0, 10), (1, 11), (2**18, 13), (2**20, 20), (4 * 2**20, 50), (64 * 2**20, 60)]
)
def test_processor_time_grows_with_the_size_up_to_a_bound(size: int, seconds: int) -> None:
    assert ParsingLimits().processor_seconds(size) == seconds


def test_the_process_knows_nothing_of_the_daemons_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_RAG_SECRET", "hunter2")
    for parser in opened(ParsingLimits()):
        require_alive(parser)
        environment = Path(f"/proc/{require_pid(parser)}/environ").read_bytes()
        names = {entry.partition(b"=")[0] for entry in environment.split(b"\0") if entry}
        assert names <= {b"PATH", b"LD_LIBRARY_PATH", b"LANG", b"LC_ALL", b"TZ", b"PYTHONPATH"}
        assert Path(f"/proc/{parser.pid}/cwd").readlink() == Path("/")


def test_the_running_process_holds_only_its_pipes(parser: ParserProcess) -> None:
    require_alive(parser)
    targets = sorted(str(file.readlink()).partition(":")[0] for file in Path(f"/proc/{parser.pid}/fd").iterdir())
    assert targets == ["/dev/null", "pipe", "pipe"]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[]",
        '{"rejected": "KeyboardInterrupt"}',
        _ANSWER % ('""', '[["paragraph", 0, 4, 0, null]]', "null"),
        _ANSWER % ('""', '[["paragraph", 2, 1, 0, null]]', "null"),
        _ANSWER % ('""', '[["paragraph", 0, 3, 0, 2]]', "1"),
        _ANSWER % ('""', '[["paragraph", 0, 3]]', "null"),
        _ANSWER % ('""', "7", "null"),
        _ANSWER % ("1", "[]", "null"),
        _ANSWER.replace("text/plain", "a/b") % ('""', "[]", "null"),
        _ANSWER % ('""', "[]", "6000"),
        "[" * 200_000,
        '{"format": ' + "[" * 200_000,
        _ANSWER.replace('"{}"', '"[]"') % ('""', "[]", "null"),
        _ANSWER.replace('"{}"', '"{\\"Bad\\": 1}"') % ('""', "[]", "null"),
    ],
)
def test_an_answer_that_no_sound_process_gives_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_answer(b"A" + answer.encode(), ParsingLimits(), {"text/plain"})


def hostile_parser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str) -> ParserProcess:
    """A parser whose process is a program that starts as the real one does and then answers as ``answer`` does."""
    program = tmp_path / "hostile"
    program.write_text(
        f"#!{sys.executable} -I\n"
        "import json, sys, os\n"
        "def read():\n"
        "    return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), 'little'))\n"
        "def send(body, length=None):\n"
        "    os.write(1, (len(body) if length is None else length).to_bytes(8, 'little') + body)\n"
        'send(b\'{"media_types": ["text/plain"], "missing": []}\')\n'
        "token = json.loads(read())['token'].encode()\n"
        "read()\n"
        f"{answer}\n"
        "sys.stdin.buffer.read()\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    return ParserProcess(ParsingLimits(wall_seconds=20, max_scanned_pages=3, max_scan_pixels=100))


@pytest.mark.parametrize(
    "answer",
    [
        "send(b'A{}')",
        "send(token, 2**62)",
        "send(token + b'X')",
        "send(token + b'A' + b'[' * 10**6)",
        "send(token + b'S' + (2**31).to_bytes(4, 'little') * 3)",
        "send(token + b'S' + b'\\1\\0\\0\\0' * 3 + bytes(50))",
        "[send(token + b'S' + b'\\1\\0\\0\\0' * 3 + b'x') for _ in range(9)]",
        "os.write(1, b'\\0' * 64); sys.exit()",
        "send(b'0' * 32 + b'A' + b'{}')",
    ],
)
def test_a_process_that_breaks_the_protocol_is_ended_and_costs_its_document_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str
) -> None:
    parser = hostile_parser(monkeypatch, tmp_path, answer)
    try:
        with pytest.raises(BrokenDocument):
            parser.read("a.txt", "", b"text")
        assert parser.pid is None
        monkeypatch.undo()
        require_alive(parser)
    finally:
        parser.close()


def test_a_reason_cannot_move_the_cursor_or_turn_text_around() -> None:
    answer = json.dumps({"rejected": "BrokenDocument", "reason": "a\x1b[2J\u202eb\n" + "x" * 9_000})
    with pytest.raises(BrokenDocument) as refused:
        decode_answer(b"A" + answer.encode(), ParsingLimits(), ())
    assert str(refused.value).startswith("a [2J b x")
    assert len(str(refused.value)) <= 500


def test_closing_in_mid_document_ends_it() -> None:
    parser = ParserProcess(ParsingLimits())
    require_alive(parser)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(parser.read, "slow.html", "", _ENDLESS_WORK)
        wait_until_busy(require_pid(parser))
        parser.close()
        with pytest.raises(BrokenDocument):
            reading.result()
    assert parser.pid is None
