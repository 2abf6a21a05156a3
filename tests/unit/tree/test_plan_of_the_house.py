"""Bounds of the source tree: files without cycles, files of one concept."""

from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[3]
GENERATED = (ROOT / "edge_rag" / "api", ROOT / "edge_rag" / "client" / "_sync")
MOST_LINES_OF_A_FILE = 600


def written_files(folder: str) -> list[Path]:
    found = (ROOT / folder).rglob("*.py")
    return [path for path in found if not any(path.is_relative_to(generated) for generated in GENERATED)]


def test_no_file_imports_itself_through_others() -> None:
    graph = grimp.build_graph("edge_rag", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()


def test_no_file_is_longer_than_one_concept() -> None:
    for top in ("edge_rag", "tests", "scripts"):
        lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in written_files(top)}
        assert not {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MOST_LINES_OF_A_FILE}
