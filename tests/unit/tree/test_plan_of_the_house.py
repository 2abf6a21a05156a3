"""Bounds of the source tree: files without cycles, folders that a reader can take in, files of one concept."""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[3]
GENERATED = (ROOT / "edge_rag" / "api", ROOT / "edge_rag" / "client" / "_sync")
MOST_FILES_OF_A_FOLDER = 14
MOST_LINES_OF_A_FILE = 600
LEAST_MEAN_LINES = 150
"""Lines of a file of the package on the mean: 420 files were the bound for 63,000 lines, and it grows with features."""


def written_files(folder: str) -> list[Path]:
    """Hand-written Python files below a top-level folder."""
    found = (ROOT / folder).rglob("*.py")
    return [path for path in found if not any(path.is_relative_to(generated) for generated in GENERATED)]


def test_no_file_imports_itself_through_others() -> None:
    graph = grimp.build_graph("edge_rag", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()


def test_no_folder_holds_more_files_than_a_reader_takes_in() -> None:
    for top in ("edge_rag", "tests", "scripts"):
        sizes = Counter(path.parent for path in written_files(top))
        crowded = {str(folder.relative_to(ROOT)): n for folder, n in sizes.items() if n > MOST_FILES_OF_A_FOLDER}
        assert not crowded


def test_no_file_is_longer_than_one_concept() -> None:
    for top in ("edge_rag", "tests", "scripts"):
        lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in written_files(top)}
        assert not {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MOST_LINES_OF_A_FILE}


def test_the_package_is_not_cut_into_small_files() -> None:
    files = written_files("edge_rag")
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert lines / len(files) >= LEAST_MEAN_LINES
