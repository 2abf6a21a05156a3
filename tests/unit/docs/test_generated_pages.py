from pathlib import Path

import pytest

from scripts.generate_docs.pages import PAGES

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_is_what_the_code_gives(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run python scripts/generate_docs"
