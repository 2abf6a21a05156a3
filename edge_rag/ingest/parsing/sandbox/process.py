"""The daemon's handle on the parser process: starts it, watches it, and replaces it when it ends."""

from __future__ import annotations

import contextlib
import json
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import ceil
from typing import Any, TypeVar

import structlog

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.core.limits.limited_process import start_child
from edge_rag.errors import BrokenDocument, DocumentRejected, DocumentTooLarge
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.pages import DocumentBoxes, Picture, RelativeBox
from edge_rag.ingest.parsing.pdf.ocr import AUTO, TesseractOcr
from edge_rag.ingest.parsing.sandbox.confinement import Protection
from edge_rag.ingest.parsing.sandbox.messages import (
    OUT_OF_MEMORY,
    decode_answer,
    decode_boxes,
    decode_picture,
    decode_ready,
    decode_scan,
    longest_answer,
    read_message,
    write_message,
)

_READY_LIMIT_BYTES = 16 * 1024
_GRACE_SECONDS = 1.0
_TOKEN_BYTES = 16
_SECONDS_A_SCAN = 5.0
_PROCESSOR_SECONDS_A_SCAN = 10
_PROCESS_CLOCK = 2
"""Clock of a process's processor time in ``clockid_t``, below the id (Linux, CPUCLOCK_SCHED)."""

MAX_MARKS = 2_000
"""Most boxes that are marked on a page."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class ParserProcess:
    """Reads documents in a process of its own, one at a time. May be called from any thread.

    The process is a new interpreter, never a fork. It is started for the first document and kept for the next ones of
    the same collection; another collection gets a new process. The process may start no other program, so the daemon
    runs OCR of scanned pages for it. The daemon also sets its limit of processor time, for each document by its size.
    """

    def __init__(self, limits: ParsingLimits, languages: str = AUTO) -> None:
        self._limits = limits
        self._ocr = TesseractOcr(languages)
        self._timed_out = False
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._documents = 0
        self._killed = threading.Event()
        self._collection = ""
        self._processor_seconds = 0
        self._media_types: frozenset[str] = frozenset()
        self._missing: tuple[Protection, ...] | None = None
        self._reported = False

    @property
    def collection(self) -> str:
        return self._collection

    @property
    def missing(self) -> tuple[Protection, ...]:
        """Protections that this host does not give the process; starts it if none was started yet."""
        with self._lock:
            if self._missing is None:
                self._running(self._collection)
            return self._missing or ()

    @property
    def pid(self) -> int | None:
        """Id of the running process, or None."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def read(self, name: str, media_type: str, content: bytes, collection: str = "") -> tuple[str, ParsedDocument]:
        """Reads a document; returns its media type and the document.

        Args:
            media_type: What the client states, or empty.
            content: The bytes.
        """
        request = {"task": "text", "name": name, "media_type": media_type}
        return self._ask(
            request, content, collection, lambda body: decode_answer(body, self._limits, self._media_types)
        )

    def draw(
        self, content: bytes, page: int, width: int, marks: Sequence[RelativeBox], collection: str = ""
    ) -> Picture:
        """Draws a page of a PDF.

        Args:
            content: The bytes.
            page: 1-based page number.
            marks: Boxes that are marked, at most ``MAX_MARKS``.
        """
        request = {"task": "picture", "page": page, "width": width, "marks": list(marks[:MAX_MARKS])}
        return self._ask(request, content, collection, lambda body: decode_picture(body, width))

    def boxes(self, content: bytes, page: int, collection: str = "") -> DocumentBoxes:
        """Reads a PDF, and where the characters of its text are on a page; other pages may come along.

        Args:
            content: The bytes.
            page: 1-based page number.
        """
        request = {"task": "boxes", "page": page}
        return self._ask(request, content, collection, lambda body: decode_boxes(body, self._limits))

    def _ask(self, request: dict[str, Any], content: bytes, collection: str, decode: Callable[[bytes], T]) -> T:
        if len(content) > self._limits.max_bytes:
            raise DocumentTooLarge(f"it has {len(content):,} bytes, at most {self._limits.max_bytes:,} are allowed")
        with self._lock:
            process = self._running(collection)
            if self._killed.is_set():
                self._stop()
                raise BrokenDocument("reading it was ended")
            self._report_missing()
            body = self._exchange(process, request, content)
            self._documents += 1
            if body is None:
                self._stop()
                raise self._rejection_for(process)
            if body == OUT_OF_MEMORY:
                self._stop()
            try:
                return decode(body)
            except ValueError as error:
                self._stop()
                raise BrokenDocument("the parser gave an invalid answer for it") from error

    @property
    def killed(self) -> bool:
        return self._killed.is_set()

    def kill(self) -> None:
        """Ends the process at once; a document being read and later ones are rejected. Does not wait."""
        self._killed.set()
        self._ocr.close()
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        self.kill()
        with self._lock:
            self._stop()

    def _running(self, collection: str) -> subprocess.Popen[bytes]:
        if self._process is not None and (
            self._process.poll() is not None
            or self._documents >= self._limits.documents_per_process
            or (self._documents and self._collection != collection)
        ):
            self._stop()
        self._collection = collection
        if self._process is None:
            self._process = self._start()
            self._documents = 0
        return self._process

    def _report_missing(self) -> None:
        if self._missing and not self._reported:
            self._reported = True
            _log.warning("document parser not fully confined", missing=[each.value for each in self._missing])

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-P",
            "-m",
            "edge_rag.ingest.parsing.sandbox.worker",
            json.dumps(asdict(self._limits)),
        ]
        try:
            process = start_child(command)
        except OSError as error:
            raise DocumentRejected(f"the parser process could not be started ({error}); try again") from error
        watchdog = _Watchdog(process, self._limits.wall_seconds)
        try:
            ready = _receive(process, _READY_LIMIT_BYTES)
        finally:
            watchdog.stop()
        try:
            # The process has not read any document yet, so this message can be trusted.
            self._media_types, missing = decode_ready(ready or b"")
        except ValueError:
            _end(process)
            raise DocumentRejected(
                f"the parser process ended at its start (exit status {process.returncode})"
            ) from None
        self._missing = missing
        return process

    def _exchange(self, process: subprocess.Popen[bytes], asked: dict[str, Any], content: bytes) -> bytes | None:
        """Sends a document and returns the answer; None if the process ended or broke the protocol."""
        token = secrets.token_hex(_TOKEN_BYTES)
        request = {**asked, "token": token, "ocr_problem": self._ocr.problem()}
        sent: tuple[bytes, ...] = (json.dumps(request).encode(), content)
        seconds = float(self._limits.wall_seconds)
        allowed = self._processor_seconds = self._limits.processor_seconds(len(content))
        for _ in range(self._limits.max_scanned_pages + 1):
            started = time.monotonic()
            if not _allow_processor_time(process.pid, allowed):
                return None
            allowed = _PROCESSOR_SECONDS_A_SCAN
            body = self._send(process, sent, seconds)
            if body is None or not body.startswith(token.encode()):
                return None
            try:
                scan = decode_scan(body[len(token) :], self._limits)
            except ValueError:
                return None
            if scan is None:
                return body[len(token) :]
            seconds += started - time.monotonic() + _SECONDS_A_SCAN
            sent = (self._ocr.read(scan),)
        return None

    def _send(self, process: subprocess.Popen[bytes], sent: Sequence[bytes], seconds: float) -> bytes | None:
        if process.stdin is None:
            return None
        watchdog = _Watchdog(process, seconds)
        try:
            for message in sent:
                write_message(process.stdin, message)
            return _receive(process, longest_answer(self._limits))
        except BrokenPipeError:
            return None
        finally:
            watchdog.stop()
            self._timed_out = watchdog.fired

    def _rejection_for(self, process: subprocess.Popen[bytes]) -> DocumentRejected:
        if self._timed_out:
            return DocumentTooLarge(f"reading it takes longer than {self._limits.wall_seconds} s")
        if process.returncode == -signal.SIGXCPU:
            return DocumentTooLarge(
                f"it needs more than {self._processor_seconds} s of parsing, the most processor time for its size; "
                "split it, or save it in a simpler format"
            )
        if process.returncode == -signal.SIGABRT:
            return DocumentTooLarge("the parser gave up on it: it takes more memory than is allowed, or is damaged")
        if process.returncode < 0:
            return BrokenDocument(f"the parser process was ended by signal {-process.returncode} while reading it")
        return BrokenDocument("the parser failed on it")

    def _stop(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


class _Watchdog:
    """Kills a process when its time is up, which ends every read from it and write to it."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.fired = False
        self._process = process
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()
        self._timer.join()

    def _fire(self) -> None:
        self.fired = True
        self._process.kill()


def _allow_processor_time(pid: int, seconds: int) -> bool:
    """Lets a process take so many seconds of processor time from now on; returns whether it still runs."""
    try:
        used = time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        resource.prlimit(pid, resource.RLIMIT_CPU, (ceil(used) + seconds, hard))
    except OSError:
        return False
    return True


def _receive(process: subprocess.Popen[bytes], limit: int) -> bytes | None:
    if process.stdout is None:
        return None
    try:
        return read_message(process.stdout, limit)
    except ValueError:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        process.wait(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
