"""Sends a file, makes a document of it and deletes it, ended before each step in turn that reaches the disk.

dying.py ROOT    prints how many steps there are; fails if what is left of one is not what was acknowledged
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.files import KEPT_S, FileState, NewFile
from edge_rag.errors import FileNotFound
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import JobStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.uploads.files import FileStore

CONTENT = bytes(range(256)) * 40
ENDED = 9


class Moments:
    """Counts steps, and ends the process before one of them."""

    def __init__(self, last: int) -> None:
        self.left = last

    def step(self) -> None:
        self.left -= 1
        if not self.left:
            os._exit(ENDED)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **options: Any) -> Any:
            self.step()
            return function(*args, **options)

        return stepping

    def arm(self) -> None:
        for name in ("fsync", "link", "unlink", "truncate", "open", "rename"):
            setattr(os, name, self.before(getattr(os, name)))
        moments, writing = self, Database.writing

        @contextmanager
        def stepping(database: Database) -> Iterator[Any]:
            moments.step()
            with writing(database) as connection:
                yield connection
                moments.step()  # before the commit
            moments.step()

        setattr(Database, "writing", stepping)  # noqa: B010 - mypy compares the signatures


@contextmanager
def opened(folder: Path) -> Iterator[tuple[FileStore, JobStore]]:
    folder.mkdir(exist_ok=True)
    with closing(Database(folder / "documents.sqlite3")) as database:
        spool = Spool(folder / "spool", 1 << 20)
        jobs = JobStore(database, spool)
        jobs.recover()
        with closing(FileStore(folder / "files", database, spool, 1 << 20)) as store:
            store.recover()
            yield store, jobs


def act(folder: Path, acknowledge: Callable[[str], None]) -> None:
    with opened(folder) as (store, jobs):
        incoming = store.receive(NewFile("ada", "a.txt", ""), len(CONTENT))
        for begin in range(0, len(CONTENT), 1000):
            incoming.write(CONTENT[begin : begin + 1000])
        file = incoming.finish("assistants", KEPT_S)
        acknowledge(f"complete {file.file_id}")
        job = jobs.start("ada")
        jobs.accept(job.job_id, Upload("a", "a.txt", "", store.link(file), owner="ada", file=file.file_id))
        acknowledge("accepted")
        store.delete(file.file_id)
        acknowledge("deleted")


def check(folder: Path, acknowledged: dict[str, str]) -> None:
    with opened(folder) as (store, jobs):
        names = {path.name for path in (folder / "files").iterdir()}
        known = {file.file_id for file in store.list(None, None, None, 9, newest_first=True)}
        assert names == known, "what was not received whole leaves nothing"
        waiting = jobs.waiting("ada", "")
        assert len(waiting) == len(list((folder / "spool").iterdir()))
        if "accepted" in acknowledged:
            (document,) = waiting
            assert jobs.upload(document.order).content.read() == CONTENT  # type: ignore[arg-type]
        if "complete" not in acknowledged:
            return
        try:
            file = store.get(acknowledged["complete"])  # type: ignore[arg-type]
        except FileNotFound:
            assert "accepted" in acknowledged, "it can only have been deleted"
            assert not names
            return
        assert "deleted" not in acknowledged
        assert (file.state, known) == (FileState.COMPLETE, {file.file_id})
        assert store.content(file).read() == CONTENT


def acknowledge(lines: TextIO, line: str) -> None:
    lines.write(f"{line}\n")


def main(root: Path) -> None:
    moment, status = 0, ENDED
    while status == ENDED:
        moment += 1
        folder, told = root / str(moment), root / f"{moment}.told"
        told.touch()
        child = os.fork()
        if not child:
            lines = told.open("a", buffering=1)
            Moments(moment).arm()
            act(folder, partial(acknowledge, lines))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        pairs = (line.partition(" ") for line in told.read_text().splitlines())
        check(folder, {kind: value for kind, _, value in pairs})
    if status:
        raise AssertionError(f"the run before step {moment} ended with {status}")
    sys.stdout.write(f"{moment}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
