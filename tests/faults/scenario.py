"""A process whose disk fails, run by ``test_disk_faults`` with the shim preloaded.

    scenario.py record ROOT LOG            does every act once and logs what reached the disk
    scenario.py stop ROOT                  for n = 1, 2, ...: does every act, ended before the n-th change of a file
    scenario.py full|unsynced ROOT STEP    for every STEP-th n: no room, or no sync, from the n-th change on

ROOT/start is made first; ROOT/N is what the n-th run leaves, with the acknowledged acts in ROOT/N.acts.
"""

import ctypes
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from edge_rag.bootstrap import open_directory
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import IngestOutcome, IngestStatus, ParsedDocument, Upload
from edge_rag.errors import DocumentNotFound, StorageError
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from tests.unit.retriever.hashed_words import HashedWords

RECORD, STOP, FULL, SYNC_FAILS = range(4)
STOPPED = 9

TEXTS = {
    "a.txt": "The aardvark of the first version sleeps. " * 30,
    "b.txt": "The buffalo is on its way out of here. " * 30,
    "c.txt": "The chameleon is new in this place. " * 60,
    "a.txt again": "The anaconda of the second version wakes. " * 20,
    "d.txt": "The dromedary comes last of them all. " * 10,
}
"""Each text has one word, its second, that no other has."""

Act = Callable[[OpenDirectory], None]


def put(directory: OpenDirectory, name: str, text: str) -> None:
    outcome: IngestOutcome = directory.library.ingest(
        Upload.of_bytes("default", name, "text/plain", TEXTS[text].encode())
    )
    if outcome.status is IngestStatus.REJECTED:
        raise AssertionError(outcome.reason)


def delete(directory: OpenDirectory, name: str) -> None:
    directory.library.delete("default", name)


ACTS: tuple[Act, ...] = (
    lambda directory: put(directory, "c.txt", "c.txt"),
    lambda directory: put(directory, "a.txt", "a.txt again"),
    lambda directory: delete(directory, "b.txt"),
    lambda directory: put(directory, "d.txt", "d.txt"),
    lambda directory: directory.close(),
)
STATES: tuple[dict[str, str], ...] = (
    {"a.txt": "a.txt", "b.txt": "b.txt"},
    {"a.txt": "a.txt", "b.txt": "b.txt", "c.txt": "c.txt"},
    {"a.txt": "a.txt again", "b.txt": "b.txt", "c.txt": "c.txt"},
    {"a.txt": "a.txt again", "c.txt": "c.txt"},
    {"a.txt": "a.txt again", "c.txt": "c.txt", "d.txt": "d.txt"},
    {"a.txt": "a.txt again", "c.txt": "c.txt", "d.txt": "d.txt"},
)
"""What is stored, by name and key of the text, before the first act and after each."""


class ReadBefore:
    """Replays answers of the real parser process: these tests break the disk, and a process per run takes minutes."""

    answers: ClassVar[dict[bytes, tuple[str, ParsedDocument]]] = {}
    killed = False
    collection = "default"

    def __init__(self, *arguments: object) -> None:
        pass

    @classmethod
    def prepare(cls) -> None:
        with closing(ParserProcess(ParsingLimits())) as parser:
            for text in TEXTS.values():
                cls.answers[text.encode()] = parser.read("any.txt", "text/plain", text.encode())

    def read(self, name: str, media_type: str, content: bytes, collection: str) -> tuple[str, ParsedDocument]:
        return self.answers[content]

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


class Shim:
    """The preloaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def arm(self, folder: Path, mode: int, moment: int, log: str = "") -> None:
        self._library.faults_arm(str(folder).encode(), log.encode(), mode, ctypes.c_long(moment))

    def disarm(self) -> int:
        return int(self._library.faults_disarm())

    def mark(self, text: str) -> None:
        self._library.faults_mark(text.encode())


def make_start(folder: Path) -> None:
    directory = OpenDirectory(folder, HashedWords())
    for name in ("a.txt", "b.txt"):
        put(directory, name, name)
    directory.close()


def in_child(work: Callable[[], None]) -> int:
    """Runs something in a forked process; returns its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def record(root: Path, log: str) -> None:
    folder = root / "work"
    shutil.copytree(root / "start", folder)
    shim = Shim()
    shim.arm(folder, RECORD, 0, log)
    directory = OpenDirectory(folder, HashedWords())
    shim.mark("0")
    for number, act in enumerate(ACTS, start=1):
        act(directory)
        shim.mark(str(number))


def stop_everywhere(root: Path) -> None:
    number = 0
    status = STOPPED
    while status == STOPPED:
        number += 1
        status = in_child(partial(interrupted, root, number))
    if status:
        raise AssertionError(f"run {number} ended with {status}")


def interrupted(root: Path, number: int) -> None:
    folder = root / str(number)
    shutil.copytree(root / "start", folder)
    directory = OpenDirectory(folder, HashedWords())
    with (root / f"{number}.acts").open("w", buffering=1) as acts:
        Shim().arm(folder, STOP, number)
        for act in ACTS:
            act(directory)
            acts.write("x")
            acts.flush()


def fail_everywhere(root: Path, mode: int, step: int) -> None:
    number, reached = 1, True
    while reached:
        status = in_child(partial(failing, root, mode, number))
        if status not in (0, 3):
            raise AssertionError(f"run {number} ended with {status}")
        reached = status == 0
        number += step


def failing(root: Path, mode: int, number: int) -> None:
    """Does the acts on a disk that fails from some moment on, checks that reads go on, then goes on on a sound disk."""
    folder = root / str(number)
    shutil.copytree(root / "start", folder)
    directory = OpenDirectory(folder, HashedWords())
    shim = Shim()
    shim.arm(folder, mode, number)
    done, failed = 0, False
    for act in ACTS[:-1]:
        try:
            act(directory)
        except StorageError as error:
            failed = True
            if not str(error):
                raise AssertionError("an error that says nothing") from error
            break
        done += 1
    present = stored(directory)
    possible = [STATES[done], STATES[done + 1]] if failed and mode == SYNC_FAILS else [STATES[done]]
    if present not in possible:
        raise AssertionError(f"{done} acts were acknowledged, stored is {present}")
    shim.disarm()
    for act in ACTS[done : len(ACTS) - 1]:
        with suppress(DocumentNotFound):
            act(directory)  # a delete whose sync failed may have been done
    (root / f"{number}.acts").write_text("x" * (len(ACTS) - 1))
    os._exit(0 if failed else 3)


def stored(directory: OpenDirectory) -> dict[str, str]:
    keys = {text.strip(): key for key, text in TEXTS.items()}
    return {
        info.name: keys[directory.documents.get("default", info.name)[1]]
        for info in directory.documents.list("default", None, 100)
    }


def main(what: str, root: Path, *rest: str) -> None:
    ReadBefore.prepare()
    vars(open_directory)["ParserProcess"] = ReadBefore
    if in_child(lambda: make_start(root / "start")):
        raise AssertionError("the start could not be made")
    match what:
        case "record":
            record(root, rest[0])
        case "stop":
            stop_everywhere(root)
        case "full":
            fail_everywhere(root, FULL, int(rest[0]))
        case "unsynced":
            fail_everywhere(root, SYNC_FAILS, int(rest[0]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
