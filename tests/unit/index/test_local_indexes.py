"""Large collections: segments, what they are rebuilt for, and that index and database agree whatever happened."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import structlog
from numpy.typing import NDArray

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.index.ivf_build import build_segment
from edge_rag.index.local import BackgroundBuilds, IndexLimits, LocalIndexes
from edge_rag.storage import migrations as schema
from edge_rag.storage.database import Database
from edge_rag.storage.statements import Change
from edge_rag.storage.vectors import StoredVectors
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

_EXACT = 60
_SECONDS = 60.0
_SETTINGS = DirectoryOptions(indexes=IndexLimits(exact_vectors=_EXACT))
Opener = Callable[[], OpenDirectory]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed data directory of 80 documents with a segment."""
    path = tmp_path_factory.mktemp("made") / "data"
    with closing(OpenDirectory(path, HashedWords(), _SETTINGS)) as directory:
        fill(directory, 0, 80)
    return path


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.fixture
def opened(data: Path) -> Iterator[Opener]:
    """Opens the data directory with little that is searched exactly; whatever is open at the end is closed."""
    directories: list[OpenDirectory] = []

    def start() -> OpenDirectory:
        directory = OpenDirectory(data, HashedWords(), _SETTINGS)
        directories.append(directory)
        return directory

    yield start
    for directory in directories:
        directory.close()


def builds_of(directory: OpenDirectory) -> BackgroundBuilds:
    home = directory.indexes.backends[BackendKind.FAISS]
    assert isinstance(home, LocalIndexes)
    return home.builds


def fill(directory: OpenDirectory, first: int, past: int) -> None:
    for number in range(first, past):
        ingest(directory, f"{number}.txt", f"Valve number{number} is shut by lever{number} at the wall.")
    builds_of(directory).wait()


def found(directory: OpenDirectory, number: int) -> str | None:
    (answer,) = directory.retriever.retrieve(
        [RetrievalRequest(f"Valve number{number} is shut by lever{number} at the wall.", "default", 50)]
    )
    assert isinstance(answer, Retrieved)
    best = [hit for hit in answer.hits if hit.dense_rank == 1]
    return best[0].passage.document if best else None


def segments(data: Path) -> list[Path]:
    return [path for path in (data / "vectors").glob("*.faiss") if path.name.count(".") == 2]


def require_found(directory: OpenDirectory, present: range, removed: frozenset[int] = frozenset()) -> None:
    for number in present:
        expected = None if number in removed else f"{number}.txt"
        best = found(directory, number)
        assert best == expected if number not in removed else best != f"{number}.txt"


def test_a_collection_that_grows_past_what_is_searched_exactly_gets_a_segment(tmp_path: Path) -> None:
    with closing(OpenDirectory(tmp_path, HashedWords(), _SETTINGS)) as directory:
        fill(directory, 0, _EXACT)
        assert segments(tmp_path) == []

        fill(directory, _EXACT, _EXACT + 1)

        assert len(segments(tmp_path)) == 1
        require_found(directory, range(_EXACT + 1))


def test_a_segment_is_used_after_a_restart_with_what_changed_since_it_was_built(opened: Opener, data: Path) -> None:
    directory = opened()
    (segment,) = segments(data)
    directory.library.delete("default", "7.txt")
    ingest(directory, "8.txt", "Valve number8 is shut by lever8 at the wall, now.")
    fill(directory, 80, 90)
    directory.close()

    with structlog.testing.capture_logs() as logs:
        directory = opened()

    assert logs == []
    assert segments(data) == [segment]
    require_found(directory, range(90), frozenset({7}))


@pytest.mark.parametrize("harm", ["flipped", "shortened", "missing", "no manifest", "other manifest"])
def test_a_damaged_segment_is_built_again(opened: Opener, data: Path, harm: str) -> None:
    (segment,) = segments(data)
    manifest = segment.with_suffix(".json")
    content = bytearray(segment.read_bytes())
    match harm:
        case "flipped":
            content[len(content) // 2] ^= 1
            segment.write_bytes(content)
        case "shortened":
            segment.write_bytes(content[:-1])
        case "missing":
            segment.unlink()
        case "no manifest":
            manifest.unlink()
        case _:
            manifest.write_text(manifest.read_text().replace("hashed-words", "hashed-wordz"))

    directory = opened()

    (rebuilt,) = segments(data)
    assert rebuilt != segment
    require_found(directory, range(80))


def test_a_segment_of_another_history_is_not_taken_for_this_ones(opened: Opener, data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "documents.sqlite3", tmp_path / "copy.sqlite3")
    directory = opened()
    fill(directory, 80, 150)
    ingest(directory, "0.txt", "Valve number0 was replaced.")
    directory.close()
    shutil.copy(tmp_path / "copy.sqlite3", data / "documents.sqlite3")

    directory = opened()
    fill(directory, 1000, 1010)

    require_found(directory, range(80))
    require_found(directory, range(1000, 1010))


def test_changes_made_while_a_segment_is_built_are_in_what_is_searched_after(
    opened: Opener, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened()
    changed = False

    def change_meanwhile(build: Callable[..., object]) -> Callable[..., object]:
        def built(*arguments: object) -> object:
            *others, checkpoint = arguments
            assert callable(checkpoint)

            def change(done: float) -> None:
                nonlocal changed
                if done >= 1 and not changed:
                    changed = True
                    directory.library.delete("default", "3.txt")
                    ingest(directory, "4.txt", "Valve number4 was replaced.")
                    ingest(directory, "500.txt", "Valve number500 is shut by lever500 at the wall.")
                checkpoint(done)

            return build(*others, change)

        return built

    monkeypatch.setattr("edge_rag.index.local.build_segment", change_meanwhile(build_segment))
    builds_of(directory).request(1)
    builds_of(directory).wait()

    assert changed
    require_found(directory, range(80), frozenset({3, 4}))
    require_found(directory, range(500, 501))


def test_a_build_between_a_deletion_in_sqlite_and_in_the_index_is_repeated(
    opened: Opener, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened()
    builds, apply, request = builds_of(directory), directory.indexes.apply, builds_of(directory).request
    builds.wait()
    held: list[tuple[Change, NDArray[np.float32]]] = []
    built = 0

    def delete_first(*arguments: object) -> object:
        nonlocal built
        built += 1
        if built == 1:
            monkeypatch.setattr(directory.indexes, "apply", lambda *change: held.append(change))
            for number in range(55):
                directory.library.delete("default", f"{number}.txt")
        return build_segment(*arguments)  # type: ignore[arg-type]

    def request_after_applying(number: int) -> None:
        changes = held.copy()
        held.clear()
        for change in changes:
            apply(*change)
        request(number)

    monkeypatch.setattr("edge_rag.index.local.build_segment", delete_first)
    request(1)
    monkeypatch.setattr(builds, "request", request_after_applying)
    builds.wait()

    assert held == []
    assert segments(data) == []
    require_found(directory, range(80), frozenset(range(55)))


@pytest.mark.parametrize("when", [0.0, 0.5, 1.0])
def test_closing_stops_a_build_and_leaves_the_segment_there_was(
    opened: Opener, data: Path, monkeypatch: pytest.MonkeyPatch, when: float
) -> None:
    directory = opened()
    build = builds_of(directory)
    build.wait()
    before = segments(data)
    checkpoint = build._checkpoint
    reached, closing = threading.Event(), threading.Event()

    def close_then(done: float) -> None:
        if done >= when:
            reached.set()
            assert closing.wait(_SECONDS)
        checkpoint(done)

    monkeypatch.setattr(build, "_checkpoint", close_then)
    build.request(1)
    assert reached.wait(_SECONDS)
    with build._changed:
        build._closing = True
    closing.set()
    directory.close()

    assert segments(data) == before
    assert not list((data / "vectors").glob(".*.partial"))


def test_a_build_that_fails_leaves_the_index_as_it_was(
    opened: Opener, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened()
    before = segments(data)

    def fail(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full, structlog.testing.capture_logs() as logs:
        full.setattr(StoredVectors, "record_segment", fail)
        builds_of(directory).request(1)
        builds_of(directory).wait()

    assert [entry["log_level"] for entry in logs if entry["log_level"] != "info"] == ["error"]
    assert segments(data) == before
    require_found(directory, range(80))


def test_a_collection_that_shrinks_is_searched_exactly_again(opened: Opener, data: Path) -> None:
    directory = opened()
    for number in range(55):
        directory.library.delete("default", f"{number}.txt")
    builds_of(directory).wait()

    assert segments(data) == []
    require_found(directory, range(80), frozenset(range(55)))
    directory.close()
    require_found(opened(), range(80), frozenset(range(55)))


def test_a_dropped_collection_takes_its_segment_with_it(opened: Opener, data: Path) -> None:
    directory = opened()
    for number in range(80):
        directory.library.delete("default", f"{number}.txt")
    builds_of(directory).wait()

    assert list((data / "vectors").iterdir()) == []


def test_files_that_belong_to_nothing_are_cleared_on_opening(opened: Opener, data: Path) -> None:
    before = set((data / "vectors").iterdir())
    for name in ("1.0123.faiss", "1.0123.json", ".1.0123.faiss.partial", "9.faiss"):
        (data / "vectors" / name).write_bytes(b"left")

    opened()

    assert set((data / "vectors").iterdir()) == before


def test_a_database_from_before_there_were_segments_can_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = next(place for place, migration in enumerate(schema._MIGRATIONS) if "TABLE segments" in str(migration[0]))
    with monkeypatch.context() as older:
        older.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:before])
        Database(tmp_path / "documents.sqlite3").close()

    with closing(OpenDirectory(tmp_path, HashedWords(), _SETTINGS)) as directory:
        fill(directory, 0, _EXACT + 1)
        assert len(segments(tmp_path)) == 1
