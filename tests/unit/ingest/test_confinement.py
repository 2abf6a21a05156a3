"""What a process that a document has taken over can reach: nothing but its pipes."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox import seccomp
from edge_rag.ingest.parsing.sandbox.confinement import Protection
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from edge_rag.ingest.parsing.sandbox.seccomp import ARCHITECTURES, CALLS, Architecture, Instruction

ROOT = Path(__file__).parents[3]
PROCESS = 4321
PARSER_CALLS = frozenset(
    (
        *("brk", "munmap", "mremap", "madvise", "sched_yield", "getrandom", "getpid", "gettid", "getrusage", "close"),
        *("clock_gettime", "clock_getres", "gettimeofday", "exit", "exit_group", "restart_syscall"),
        *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack"),
    )
)
BY_ARGUMENT = frozenset(("read", "write", "mmap", "mprotect", "futex", "tgkill"))
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "documents.sqlite3"
    file.write_text("the daemon's own")
    file.chmod(0o600)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    return file


def run(victim: Path, mode: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.escaping_process", str(victim), mode],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def attempted(victim: Path, mode: str) -> dict[str, Any]:
    done = run(victim, mode)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_no_attempt_to_reach_beyond_the_process_succeeds(victim: Path) -> None:
    before = victim.stat()
    result = attempted(victim, "confined")
    if Protection.SYSTEM_CALL_FILTER in result["lacked"]:
        pytest.skip("this kernel has no seccomp filters")
    assert result["failed"] == dict.fromkeys(result["failed"], errno.EPERM)
    after = victim.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert [file.name for file in victim.parent.iterdir()] == [victim.name]
    assert victim.read_text() == "the daemon's own"


def test_the_same_attempts_succeed_in_a_free_process(victim: Path) -> None:
    result = attempted(victim, "free")
    assert result["failed"] == dict.fromkeys(result["failed"], 0)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is a table of calls of x86-64")
def test_a_call_of_another_table_ends_the_process(victim: Path) -> None:
    assert run(victim, "foreign call").returncode == -signal.SIGSYS


def test_the_running_parser_has_no_capability_and_namespaces_of_its_own() -> None:
    parser = ParserProcess(ParsingLimits())
    try:
        missing = parser.missing
        parser.read("a.txt", "", b"text")
        folder = Path(f"/proc/{parser.pid}")
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
        if Protection.NO_CAPABILITIES not in missing:
            sets = {key: value for key, value in status.items() if key.startswith("Cap")}
            assert sets == dict.fromkeys(sets, "0" * 16)
            assert len(sets) == 5
        if Protection.SYSTEM_CALL_FILTER not in missing:
            assert status["Seccomp"] == "2"
        assert status["NoNewPrivs"] == "1"
        for kind, protection in (("net", Protection.NETWORK_NAMESPACE), ("ipc", Protection.IPC_NAMESPACE)):
            own = (folder / "ns" / kind).readlink() == Path(f"/proc/self/ns/{kind}").readlink()
            assert own == (protection in missing)
    finally:
        parser.close()


def executed(program: Sequence[Instruction], architecture: int, number: int, arguments: Sequence[int]) -> int:
    """Runs a filter on one call, as the kernel does: the instructions of classic BPF that filters are made of."""
    data = number.to_bytes(4, "little") + architecture.to_bytes(4, "little") + bytes(8)
    data += b"".join(argument.to_bytes(8, "little") for argument in (*arguments, *[0] * (6 - len(arguments))))
    position = accumulator = 0
    while True:
        code, if_true, if_false, operand = program[position]
        position += 1
        match code:
            case seccomp.LOAD_WORD:
                assert operand % 4 == 0
                accumulator = int.from_bytes(data[operand : operand + 4], "little")
            case seccomp.MASK:
                accumulator &= operand
            case seccomp.JUMP_IF_EQUAL:
                position += if_true if accumulator == operand else if_false
            case seccomp.JUMP_IF_AT_LEAST:
                position += if_true if accumulator >= operand else if_false
            case seccomp.JUMP_IF_ANY_BIT:
                position += if_true if accumulator & operand else if_false
            case seccomp.RETURN:
                return operand
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def verdict(architecture: Architecture, name: str, *arguments: int) -> int:
    number = CALLS[name][architecture.column]
    assert number is not None
    return executed(seccomp.parser_filter(architecture, PROCESS), architecture.audit, number, arguments)


@every_architecture
def test_the_parser_may_make_the_listed_calls_and_no_other(architecture: Architecture) -> None:
    numbers = {name: numbers[architecture.column] for name, numbers in CALLS.items()}
    allowed = {numbers[name] for name in PARSER_CALLS}
    by_argument = {numbers[name] for name in BY_ARGUMENT}
    program = seccomp.parser_filter(architecture, PROCESS)
    for number in range(600):
        if number not in by_argument:
            expected = seccomp.ALLOW if number in allowed else seccomp.REFUSE
            assert executed(program, architecture.audit, number, ()) == expected, number


@every_architecture
@given(st.sampled_from(sorted(CALLS)), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_arguments_matter_only_where_a_rule_reads_them(
    architecture: Architecture, name: str, arguments: list[int]
) -> None:
    if CALLS[name][architecture.column] is None:
        return
    low = [argument & 0xFFFFFFFF for argument in arguments]
    conditions: Mapping[str, Callable[[], bool]] = {
        "read": lambda: low[0] == 0,
        "write": lambda: low[0] in (1, 2),
        "mmap": lambda: not low[2] & 4 and low[4] == 0xFFFFFFFF,
        "mprotect": lambda: not low[2] & 4,
        "futex": lambda: low[1] & ~(128 | 256) in (0, 1, 9, 10),
        "tgkill": lambda: low[0] == PROCESS,
    }
    permitted = conditions[name]() if name in conditions else name in PARSER_CALLS
    assert (verdict(architecture, name, *arguments) == seccomp.ALLOW) == permitted


@every_architecture
def test_the_conditions_hold_at_their_borders(architecture: Architecture) -> None:
    anonymous = (0, 4096, 3, 0x22, 2**64 - 1, 0)
    assert verdict(architecture, "mmap", *anonymous) == seccomp.ALLOW
    assert verdict(architecture, "mmap", 0, 4096, 7, 0x22, 2**64 - 1, 0) == seccomp.REFUSE
    assert verdict(architecture, "mmap", 0, 4096, 3, 1, 0, 0) == seccomp.REFUSE
    assert verdict(architecture, "mprotect", 0, 4096, 3) == seccomp.ALLOW
    assert verdict(architecture, "futex", 0, 0 | 128) == seccomp.ALLOW
    assert verdict(architecture, "futex", 0, 9 | 128 | 256) == seccomp.ALLOW
    assert verdict(architecture, "futex", 0, 6) == seccomp.REFUSE  # priority inheritance
    assert verdict(architecture, "tgkill", PROCESS, PROCESS, 6) == seccomp.ALLOW
    assert verdict(architecture, "tgkill", 1, 1, 6) == seccomp.REFUSE


@every_architecture
def test_a_program_may_do_all_but_reach_beyond_itself(architecture: Architecture) -> None:
    program = seccomp.program_filter(architecture, PROCESS)

    def judged(name: str, *arguments: int) -> int:
        number = CALLS[name][architecture.column]
        assert number is not None
        return executed(program, architecture.audit, number, arguments)

    assert {judged(name) for name in ("read", "write", "mmap", "mprotect", "futex", "exit_group")} == {seccomp.ALLOW}
    for name in ("fchmodat", "fchmodat2", "utimensat", "fchownat", "shmget", "socket", "ptrace", "io_uring_setup"):
        assert judged(name) == seccomp.REFUSE
    assert judged("clone", 17) == seccomp.ALLOW
    assert judged("clone", 0x10000000 | 17) == seccomp.REFUSE
    assert judged("clone3") == seccomp.NOT_IMPLEMENTED
    execve, openat = {"x86_64": (59, 257), "aarch64": (221, 56)}[
        next(name for name, each in ARCHITECTURES.items() if each is architecture)
    ]
    assert executed(program, architecture.audit, execve, ()) == seccomp.ALLOW
    assert executed(program, architecture.audit, openat, ()) == seccomp.ALLOW


@every_architecture
def test_calls_of_other_tables_end_the_process(architecture: Architecture) -> None:
    for program in (seccomp.parser_filter(architecture, PROCESS), seccomp.program_filter(architecture, PROCESS)):
        for other in (0x40000003, 0x40000028, 0, *(each.audit for each in ARCHITECTURES.values())):
            if other != architecture.audit:
                assert executed(program, other, 0, ()) == seccomp.KILL
        assert executed(program, architecture.audit, 0x40000000, ()) == seccomp.KILL
        assert len(program) <= 4096
        assert all(max(if_true, if_false) <= 255 for _, if_true, if_false, _ in program)
