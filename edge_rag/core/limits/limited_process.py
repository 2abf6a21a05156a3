"""Child processes that compute something hostile input may make expensive, and that never outlive their parent.

A child is a new interpreter, never a fork of the parent. This module runs in it too, as a program. It applies limits
and serves requests, and the kernel kills it when the thread that started it ends (``PR_SET_PDEATHSIG``). Or it runs
another module beside itself, and kills the process group, with all that the module started, when its input ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import runpy
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, NoReturn

import edge_rag

_PARENT_DEATH_SIGNAL: Final = 1
_NO_NEW_PRIVILEGES: Final = 38
_INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_HEADER: Final = struct.Struct("<Qd")  # bytes of the body, processor seconds
_OUT_OF_MEMORY: Final = 77
_START_SECONDS: Final = 60.0
_NICE: Final = 10
_THIS: Final = "edge_rag.core.limits.limited_process"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The most that one request may use.

    Attributes:
        memory_bytes: Address space beyond that of the idle process.
    """

    memory_bytes: int
    cpu_seconds: int
    wall_seconds: float
    answer_bytes: int


class ProcessFailure(Enum):
    """Why there is no answer."""

    TIME = "it takes too much time"
    MEMORY = "it takes too much memory"
    SIZE = "its result is too large"
    CRASH = "computing it ended the process"
    START = "no process could be started for it"


@dataclass(frozen=True, slots=True)
class ProcessAnswer:
    """The outcome of a request.

    Attributes:
        body: The answer, or why there is none.
        cpu_s: Processor seconds it took; those allowed, if they were exceeded.
    """

    body: bytes | ProcessFailure
    cpu_s: float


class LimitedProcess:
    """Computes answers in a process of its own, one at a time; started by the first request, replaced after a failure.

    Any thread; the process ends with the thread whose request started it.

    Args:
        handler: ``module:function`` in the child; takes and returns bytes. All imports must happen with the module's.
    """

    def __init__(self, handler: str, limits: ProcessLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the running process, or None."""
        process = self._process
        return None if process is None else process.pid

    def call(self, request: bytes) -> ProcessAnswer:
        """Returns the answer to a request."""
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._end()
            try:
                process = self._process = self._process or self._start()
            except OSError:
                return ProcessAnswer(ProcessFailure.START, 0.0)
            answer = self._exchange(process, request)
            if isinstance(answer.body, ProcessFailure):
                self._end()
            return answer

    def kill(self) -> None:
        """Ends the process at once; a request in progress fails. ``close`` must follow."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """Ends the process; the next request starts another one."""
        with self._lock:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        process = start_child([*python_command(), "serve", self._handler, json.dumps(asdict(self._limits))])
        if isinstance(_receive(process, _START_SECONDS, 0).body, ProcessFailure):
            end_child(process)
            raise OSError(self._handler)
        return process

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> ProcessAnswer:
        limits = self._limits
        with suppress(BrokenPipeError):
            _write(process.stdin, request, 0.0)
        answer = _receive(process, limits.wall_seconds, limits.answer_bytes)
        if not isinstance(answer.body, ProcessFailure):
            return answer
        return ProcessAnswer(answer.body, limits.cpu_seconds if answer.body is ProcessFailure.TIME else answer.cpu_s)

    def _end(self) -> None:
        if self._process is not None:
            end_child(self._process)
            self._process = None


def start_child(
    command: list[str], further: Mapping[str, str] = NOTHING, *, cwd: Path = Path("/"), stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Starts a process in a group of its own, with pipes for its input and output, and none of the caller's secrets.

    Args:
        further: Environment variables beside the usual ones and the place of this package.

    Raises:
        OSError: It cannot be started.
    """
    inherited = {key: os.environ[key] for key in _INHERITED if key in os.environ}
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**inherited, **further, "PYTHONPATH": str(Path(edge_rag.__file__).parents[1])},
        cwd=cwd,
        start_new_session=True,
    )


def python_command() -> list[str]:
    """Returns the command that runs this module in a child of this process; the arguments of ``main`` follow."""
    return [sys.executable, "-P", "-m", _THIS, str(os.getpid())]


def _receive(process: subprocess.Popen[bytes], seconds: float, longest: int) -> ProcessAnswer:
    """Reads a message. The process is killed when the time is up, which ends the read."""
    timed_out = threading.Event()

    def expire() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        found = _read(process.stdout, longest)
    except ValueError:
        return ProcessAnswer(ProcessFailure.SIZE, 0.0)
    finally:
        timer.cancel()
        timer.join()
    if found is not None:
        return ProcessAnswer(*found)
    status = process.wait()
    if timed_out.is_set() or status == -signal.SIGXCPU:
        return ProcessAnswer(ProcessFailure.TIME, 0.0)
    # Libraries in C++ and Rust abort when memory runs out.
    out_of_memory = status in (_OUT_OF_MEMORY, -signal.SIGABRT)
    return ProcessAnswer(ProcessFailure.MEMORY if out_of_memory else ProcessFailure.CRASH, 0.0)


def kill_child(process: subprocess.Popen[bytes]) -> None:
    """Kills a child of ``start_child``, with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_child(process: subprocess.Popen[bytes]) -> None:
    """Kills a child of ``start_child``, waits for its end and closes its pipes."""
    if process.returncode is None:
        kill_child(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _write(stream: IO[bytes] | None, body: bytes, cpu_s: float) -> None:
    if stream is not None:
        stream.write(_HEADER.pack(len(body), cpu_s) + body)
        stream.flush()


def _read(stream: IO[bytes] | None, longest: int | None) -> tuple[bytes, float] | None:
    """Reads a message; None at the end of the stream."""
    header = b"" if stream is None else stream.read(_HEADER.size)
    if stream is None or len(header) < _HEADER.size:
        return None
    length, cpu_s = _HEADER.unpack(header)
    if longest is not None and length > longest:
        raise ValueError(f"a message of {length} bytes")
    body = stream.read(length)
    return (body, cpu_s) if len(body) == length else None


def _end_with(parent: int) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)


def _serve(handler: str, limits: ProcessLimits) -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    module, _, function = handler.partition(":")
    handle: Callable[[bytes], bytes] = getattr(importlib.import_module(module), function)
    with suppress(OSError):
        os.nice(_NICE)
    _limit(
        {
            resource.RLIMIT_AS: _address_space() + limits.memory_bytes,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: 0,
            resource.RLIMIT_NPROC: 0,
        }
    )
    _write(answers, b"", 0.0)
    while (request := _read(requests, None)) is not None:
        started = time.process_time()
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(started) + limits.cpu_seconds, most))
        try:
            answer = handle(request[0])
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
        _write(answers, answer, time.process_time() - started)


def _limit(limits: Mapping[int, int]) -> None:
    for kind, value in limits.items():
        _, allowed = resource.getrlimit(kind)
        least = value if allowed == resource.RLIM_INFINITY else min(value, allowed)
        resource.setrlimit(kind, (least, least))


def _address_space() -> int:
    """Returns the address space of this process, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _kill_group_at_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _run(arguments: list[str]) -> NoReturn:
    """Runs a module in a process beside this one, and ends as it does."""
    pid = os.fork()  # before any thread
    if pid == 0:
        _end_with(os.getppid())
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        sys.exit()
    threading.Thread(target=_kill_group_at_end_of_input, daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


def main(arguments: list[str]) -> None:
    """Serves ``PARENT serve MODULE:FUNCTION LIMITS``, or runs ``PARENT run MODULE ARGUMENT...``."""
    if arguments[1] == "serve":
        _end_with(int(arguments[0]))
        _serve(arguments[2], ProcessLimits(**json.loads(arguments[3])))
    else:
        _run(arguments[2:])


if __name__ == "__main__":
    main(sys.argv[1:])
