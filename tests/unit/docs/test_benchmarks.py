"""Every table of docs/benchmarks.md stands in a section that says how and when it was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:] if "\n|---" in part
}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_with_a_table_names_a_command_and_a_date(title: str) -> None:
    assert re.search(r"`(python -m )?scripts\.", SECTIONS[title])
    assert re.search(r"\d{1,2}\s+[A-Z][a-z]+\s+20\d\d", SECTIONS[title])
