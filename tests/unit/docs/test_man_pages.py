"""Manual pages, as groff and mandoc judge them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_rag.cli.main import COMMANDS
from scripts.generate_docs.man_pages import man_pages

ROOT = Path(__file__).parents[3]
PAGES = man_pages("2026-11-24")
CHECKS = {
    "groff": ("groff", "-man", "-Tutf8", "-ww", "-z"),
    "mandoc": ("mandoc", "-T", "lint", "-W", "warning"),
}


def test_every_command_has_a_page_that_names_its_options() -> None:
    assert {f"edge-rag-{name}.1" for name in COMMANDS} | {"edge-rag.1", "edge-rag-models-add.1"} <= set(PAGES)
    assert "\\fB\\-\\-collection NAME\\fR" in PAGES["edge-rag-ask.1"]
    assert "\\fBedge\\-rag\\-models\\-add\\fR(1)" in PAGES["edge-rag-models.1"]
    assert "3    no daemon was reached" in PAGES["edge-rag.1"]


def test_the_pages_of_one_date_are_the_same_files(tmp_path: Path) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1795478400"}
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs"), "--man", str(tmp_path)]
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == PAGES


@pytest.mark.parametrize("program", CHECKS)
def test_a_formatter_finds_nothing_wrong(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    said = {}
    for name, text in PAGES.items():
        file = tmp_path / name
        file.write_text(text)
        ended = subprocess.run([*CHECKS[program], file], capture_output=True, text=True, timeout=60)
        said[name] = ended.stdout + ended.stderr
    assert {name: text for name, text in said.items() if text} == {}


def test_text_that_looks_like_a_macro_or_an_escape_is_text() -> None:
    page = PAGES["edge-rag-ask.1"]
    assert not [line for line in page.splitlines() if line.startswith("'")]
    assert "\\(aqtag = \\(dqpump\\(dq and not draft = true\\(aq" in page
