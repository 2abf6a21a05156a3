"""Backups by a schedule: when they are made, that each can be restored, and what a kill leaves."""

import os
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.core.monitoring.alerts import FULL_DISK_BYTES
from edge_rag.core.monitoring.schedule import Schedule
from edge_rag.core.monitoring.status import StoredBackup
from edge_rag.errors import BackupInvalid, NotReady, RequestCancelled, StorageFull
from edge_rag.storage.recovery.restore import restore
from edge_rag.storage.recovery.scheduled_backups import ScheduledBackups, make_verified
from edge_rag.storage.recovery.stored_backups import StoredBackups
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

START = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIMEOUT_S = 30


class Days:
    """A machine on which waiting moves the clock, until a time."""

    def __init__(self, until: datetime, make: Callable[[datetime], None] = lambda now: None) -> None:
        self.now = START
        self._until = until
        self._make = make
        self.made: list[datetime] = []
        self.tried: list[datetime] = []
        self._over = threading.Event()

    def run(self, schedule: str, newest: datetime | None = None) -> ScheduledBackups:
        backups = [] if newest is None else [newest]

        def make(is_cancelled: Callable[[], bool]) -> StoredBackup:
            self.tried.append(self.now)
            self._make(self.now)
            self.made.append(self.now)
            backups.append(self.now)
            return StoredBackup("20261123T120005Z.edge-rag", self.now, 1)

        scheduled = ScheduledBackups(
            Schedule.parse(schedule),
            make,
            lambda: backups[-1] if backups else None,
            clock=lambda: self.now,
            wait=self._wait,
        )
        scheduled.start()
        assert self._over.wait(TIMEOUT_S)
        self.state = scheduled.state()
        scheduled.close()
        return scheduled

    def _wait(self, stop: threading.Event, seconds: float) -> bool:
        assert seconds <= 60  # the clock may be set while it waits
        self.now += timedelta(seconds=max(1.0, seconds))
        if self.now >= self._until:
            self._over.set()
            return stop.wait(TIMEOUT_S)
        return stop.is_set()


def test_the_first_backup_is_made_soon_and_the_others_by_the_schedule() -> None:
    days = Days(START + 30 * HOUR)
    days.run("12h")
    first = START + timedelta(minutes=5)
    assert days.made == [first, first + 12 * HOUR, first + 24 * HOUR]
    assert days.state.next_at == first + 36 * HOUR
    assert (days.state.failure, days.state.overdue_since) == ("", None)


def test_a_backup_that_was_missed_is_made_soon_after_the_start() -> None:
    days = Days(START + HOUR)
    days.run("1d", newest=START - timedelta(days=3))
    assert days.made == [START + timedelta(minutes=5)]


def test_a_backup_of_a_time_to_come_does_not_stop_them() -> None:
    """The clock was wrong when it was made."""
    days = Days(START + 25 * HOUR)
    days.run("12h", newest=START + timedelta(days=3650))
    assert days.tried == []  # from now on, not from then

    days = Days(START + 3 * HOUR)
    days.run("1h", newest=START)
    assert len(days.made) == 2


def test_a_failure_is_told_and_tried_again_every_hour_until_one_is_made() -> None:
    def fail(now: datetime) -> None:
        if now < START + 3 * HOUR:
            raise StorageFull("no room")

    days = Days(START + 2 * HOUR, fail)
    days.run("7d")
    assert len(days.tried) == 2
    assert days.tried[1] - days.tried[0] == HOUR
    assert days.state.failure == "no room"

    days = Days(START + 6 * HOUR, fail)
    days.run("7d")
    assert (len(days.tried), len(days.made), days.state.failure) == (4, 1, "")


def test_a_backup_that_somebody_makes_is_no_failure() -> None:
    def refuse(now: datetime) -> None:
        raise NotReady("another backup is in progress")

    days = Days(START + HOUR, refuse)
    days.run("12h")
    assert (len(days.tried), days.state.failure) == (1, "")


def test_closing_ends_a_backup_that_is_being_made() -> None:
    begun = threading.Event()

    def make(is_cancelled: Callable[[], bool]) -> StoredBackup:
        begun.set()
        while not is_cancelled():
            os.sched_yield()
        raise RequestCancelled

    scheduled = ScheduledBackups(
        Schedule.parse("1h"), make, lambda: None, clock=iter_clock(), wait=lambda stop, seconds: stop.is_set()
    )
    scheduled.start()
    assert begun.wait(TIMEOUT_S)
    scheduled.close()


def iter_clock() -> Callable[[], datetime]:
    times = iter(range(10_000))
    return lambda: START + next(times) * HOUR


def test_without_a_schedule_nothing_is_due() -> None:
    scheduled = ScheduledBackups(None, lambda is_cancelled: pytest.fail("made"), lambda: None)
    scheduled.start()
    assert scheduled.state().next_at is None
    scheduled.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[OpenDirectory]:
    with closing(OpenDirectory(tmp_path / "data", HashedWords(), DirectoryOptions(backups_kept=2))) as opened:
        ingest(opened, "a.txt", "The bearing of the pump is greased once a month.")
        yield opened


def make(directory: OpenDirectory) -> StoredBackup:
    chunks = directory.backups.make({})
    size = directory.backups.size_bytes()
    return make_verified(directory.stored_backups, chunks, size, lambda worked_s: None, lambda: False)


def test_a_backup_was_restored_before_it_has_its_name(directory: OpenDirectory, tmp_path: Path) -> None:
    made = [make(directory).name for _ in range(3)]
    folder = tmp_path / "data" / "backups"
    assert sorted(path.name for path in folder.iterdir()) == [*made[1:], "last.json"]
    assert made[-1] in {backup.name for backup in directory.stored_backups.list()}
    restore(folder / made[-1], tmp_path / "other", replace=False)


def test_a_backup_that_cannot_be_restored_gets_no_name_and_the_older_ones_stay(
    directory: OpenDirectory, tmp_path: Path
) -> None:
    good = make(directory)
    damaged = bytearray(b"".join(directory.backups.make({})))
    damaged[len(damaged) // 2] ^= 1
    with pytest.raises(BackupInvalid):
        make_verified(directory.stored_backups, iter([bytes(damaged)]), 1, lambda worked_s: None, lambda: False)
    assert directory.stored_backups.list() == (good,)
    assert sorted(path.name for path in (tmp_path / "data" / "backups").iterdir()) == [good.name, "last.json"]


def test_without_room_nothing_is_written_and_the_needed_room_is_told(
    directory: OpenDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    needed = 2 * directory.backups.size_bytes() + FULL_DISK_BYTES
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(needed - 1))
    with pytest.raises(StorageFull, match=r"needs 25\d MiB .* lower backup.keep"):
        make(directory)
    assert not (tmp_path / "data" / "backups").exists()
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(needed))
    make(directory)


KILLED = """
import os, signal, sys
from pathlib import Path
from edge_rag.storage.backup import unpack
from edge_rag.storage.recovery.scheduled_backups import make_verified
from edge_rag.storage.recovery.stored_backups import StoredBackups

STEPS = "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.scandir", "chunk"
archive, folder = Path(sys.argv[1]), Path(sys.argv[2])
content = archive.read_bytes()
chunks = [content[start:start + 65536] for start in range(0, len(content), 65536)]

def killed_before(left):
    def count(event, arguments):
        nonlocal left
        left -= event in STEPS
        if event in STEPS and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted():
        for chunk in chunks:
            count("chunk", ())
            yield chunk

    stored = StoredBackups(folder, 2)
    sys.addaudithook(count)
    make_verified(stored, counted(), len(content), lambda worked_s: None, lambda: False)
    os._exit(0)

for step in range(1, 1000):
    child = os.fork()
    if child == 0:
        killed_before(step)
    status = os.waitpid(child, 0)[1]
    kept = StoredBackups(folder, 2).list()
    assert len(kept) == 2, kept
    for backup in kept:
        unpack(folder / backup.name, None)
    left = {path.name for path in folder.iterdir()} - {backup.name for backup in kept}
    assert left <= {"last.json", ".last.json.partial"}, left
    if status == 0:
        print(step)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
"""


def test_a_kill_at_any_point_leaves_only_whole_backups(directory: OpenDirectory, tmp_path: Path) -> None:
    archive, folder = tmp_path / "source.edge-rag", tmp_path / "kept"
    archive.write_bytes(b"".join(directory.backups.make({})))
    before = StoredBackups(folder, 2)
    for _ in range(2):
        before.store(iter([archive.read_bytes()]), lambda: False)
    driver = subprocess.run(
        [sys.executable, "-c", KILLED, str(archive), str(folder)], capture_output=True, text=True, check=False
    )
    assert driver.returncode == 0, driver.stderr
    assert int(driver.stdout) > 10
