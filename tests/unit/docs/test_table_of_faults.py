"""The table of faults in docs/reliability.md is the one that scripts/faults runs, and its tests exist."""

import re
from pathlib import Path

import pytest

from scripts import fault_table

ROOT = Path(__file__).parents[3]
ROWS = fault_table.rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_row_selects_tests_that_exist(row: fault_table.Row) -> None:
    names: list[str] = []
    for test in row.tests:
        path, _, name = test.partition("::")
        files = sorted((ROOT / path).rglob("test_*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        found = [each for file in files for each in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M)]
        names += [each for each in found if name in ("", each)]
        assert not name or name in found, f"{path} has no {name}"
    words = row.select.split(" or ")
    assert all(any(word in name for name in names) for word in words), f"{row.key}: {row.select} selects nothing"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_row_has_passed_and_has_a_figure_and_a_date(row: fault_table.Row) -> None:
    result = fault_table.stored()[row.key]
    assert result.passed
    assert re.search(r"\d", result.figure)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result.date)


def test_the_page_has_the_table_as_measured() -> None:
    assert fault_table.page(fault_table.stored()) == fault_table.PAGE.read_text(), "run scripts/faults --write"
