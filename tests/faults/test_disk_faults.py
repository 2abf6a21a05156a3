"""Whatever a disk or a lack of power does, what was acknowledged is there, whole, and what was deleted is not."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from tests.faults.disk import Disk, read_log
from tests.faults.scenario import ACTS, STATES, TEXTS, stored
from tests.unit.retriever.hashed_words import HashedWords
from tests.unit.storage.test_storage_faults import documents_with, require_consistent

_ROOT = Path(__file__).parents[2]
_ALL = "EDGE_RAG_SOAK_SECONDS" in os.environ


def run(shim: Path, *arguments: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("scenario.py")), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "LD_PRELOAD": str(shim)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def require_whole(folder: Path, acknowledged: int) -> int:
    """Opens what is left and checks it; returns how many acts it is the state after."""
    before, after = STATES[acknowledged], STATES[min(acknowledged + 1, len(ACTS))]
    with closing(OpenDirectory(folder, HashedWords())) as directory:
        present = stored(directory)
        assert present in (before, after)
        require_consistent(directory, folder / "documents.sqlite3")
        for name, key in present.items():
            assert documents_with(directory, word_of(key)) == {name}
        gone = {key for state in STATES[: acknowledged + 1] for key in state.values()} - set(present.values())
        for key in gone:
            assert documents_with(directory, word_of(key)) == set()
    for file in (file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        for key in gone:
            assert word_of(key).encode() not in content, f"{key} is still in {file.name}"
    return acknowledged if present == before else acknowledged + 1


def word_of(key: str) -> str:
    return TEXTS[key].split()[1]


def thinned(moments: Iterable[int], most: int) -> list[int]:
    """All moments in a soak; else some, spread evenly, the last ones (the save of the index) all."""
    every = list(moments)
    return every if _ALL else sorted({*every[:: max(1, len(every) // most)], *every[-14:]})


@pytest.mark.soak
def test_a_process_stopped_between_any_two_writes_leaves_a_whole_state(shim: Path, tmp_path: Path) -> None:
    run(shim, "stop", str(tmp_path))
    runs = sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal())
    assert len(runs) > 150
    reached = set()

    for number in thinned(runs, 60):
        acknowledged = len((tmp_path / f"{number}.acts").read_text())
        reached.add(require_whole(tmp_path / str(number), acknowledged))

    assert reached == set(range(len(ACTS) + 1)) - {len(ACTS)} | {max(reached)}


@pytest.mark.soak
def test_a_loss_of_power_at_any_moment_leaves_a_whole_state(shim: Path, tmp_path: Path) -> None:
    run(shim, "record", str(tmp_path), str(tmp_path / "log"))
    operations = read_log(tmp_path / "log")
    moments = set(thinned(range(1, len(operations) + 1), 40))
    disk = Disk(tmp_path / "start", tmp_path / "work")
    acknowledged = checked = 0
    for number, operation in enumerate(operations, start=1):
        disk.apply(operation)
        if operation.kind == "m":
            acknowledged = int(operation.path)
        if number in moments:
            for draw in (None, random.Random(number), *((random.Random(-number),) if _ALL else ())):
                shutil.rmtree(tmp_path / "left", ignore_errors=True)
                disk.after_power_loss(tmp_path / "left", draw)
                require_whole(tmp_path / "left", min(acknowledged, len(ACTS)))
                checked += 1

    assert checked >= 80
    assert acknowledged == len(ACTS)


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "step"), [("full", 6), ("unsynced", 8)])
def test_a_disk_that_fails_is_reported_and_loses_nothing_that_was_acknowledged(
    shim: Path, tmp_path: Path, fault: str, step: int
) -> None:
    run(shim, fault, str(tmp_path), str(1 if _ALL else step))
    runs = [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert len(runs) > 10

    for folder in runs:
        acknowledged = len(folder.with_suffix(".acts").read_text())
        assert require_whole(folder, acknowledged) == acknowledged


def test_the_model_of_the_disk_loses_what_was_not_synced(shim: Path, tmp_path: Path) -> None:
    """A rename without syncs is undone and bytes that were not synced are gone: else the tests above prove little."""
    start, root = tmp_path / "start", tmp_path / "work"
    start.mkdir()
    (start / "file").write_bytes(b"old")
    log = tmp_path / "log"
    shutil.copytree(start, root)
    script = (
        "import sys, os; from pathlib import Path; from tests.faults.scenario import Shim, RECORD\n"
        "root = Path(sys.argv[1]); Shim().arm(root, RECORD, 0, sys.argv[2])\n"
        "(root / 'new').write_bytes(b'new'); os.replace(root / 'new', root / 'file')\n"
        "other = (root / 'other').open('wb'); other.write(b'synced'); other.flush(); os.fsync(other.fileno())\n"
        "folder = os.open(root, os.O_RDONLY); os.fsync(folder); other.write(b' and not'); other.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "LD_PRELOAD": str(shim)}
    subprocess.run([sys.executable, "-c", script, str(root), str(log)], env=environment, check=True)
    disk = Disk(start, root)
    operations = read_log(log)
    for operation in operations[:3]:
        disk.apply(operation)
    disk.after_power_loss(tmp_path / "early", None)
    for operation in operations[3:]:
        disk.apply(operation)
    disk.after_power_loss(tmp_path / "late", None)

    assert {file.name: file.read_bytes() for file in (tmp_path / "early").iterdir()} == {"file": b"old"}
    assert {file.name: file.read_bytes() for file in (tmp_path / "late").iterdir()} == {"file": b"", "other": b"synced"}
