import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_committed_stubs_are_what_the_protos_generate(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "generate_api", tmp_path], check=True, capture_output=True)
    made, kept = stubs(tmp_path), stubs(ROOT / "edge_rag" / "api")
    assert made.keys() == kept.keys()
    assert made == kept


def stubs(folder: Path) -> dict[Path, str]:
    """The generated files; not what Python compiles of them, which another process may be writing."""
    found = (path for path in folder.rglob("*_pb2*") if path.suffix in (".py", ".pyi"))
    return {path.relative_to(folder): path.read_text() for path in found}


def test_every_field_and_method_of_the_protos_is_described() -> None:
    for proto in sorted((ROOT / "proto").rglob("*.proto")):
        lines = proto.read_text().splitlines()
        for above, line in pairwise(lines):
            declares = line.strip().startswith(("rpc ", "repeated ", "optional ")) or (
                line.startswith("  ") and line.rstrip().endswith(";") and " = " in line
            )
            assert not declares or above.strip().startswith("//"), f"{proto.name}: {line.strip()!r} has no comment"
