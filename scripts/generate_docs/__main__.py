"""Writes the generated pages of docs/reference: python scripts/generate_docs [OUTPUT_FOLDER]."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.generate_docs.pages import PAGES  # noqa: E402


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "reference"
    target.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (target / name).write_text(page(), encoding="utf-8")


main()
