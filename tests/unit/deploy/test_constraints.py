from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
DEBIAN_12 = "3.11.2"


def test_every_library_runs_on_the_python_of_debian_12() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    fixed = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    installed = [found for found in distributions() if canonicalize_name(found.name) in fixed]
    assert len(installed) > 20
    wanted = {found.name: found.metadata["Requires-Python"] or "" for found in installed}
    assert {name: asks for name, asks in wanted.items() if DEBIAN_12 not in SpecifierSet(asks)} == {}
