"""Writes the generated pages of docs/reference, or manual pages:

    python scripts/generate_docs [OUTPUT_FOLDER]
    python scripts/generate_docs --man OUTPUT_FOLDER

Manual pages have the date of SOURCE_DATE_EPOCH, else today's.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def main() -> None:
    as_manual = sys.argv[1:2] == ["--man"]
    given = sys.argv[2:] if as_manual else sys.argv[1:]
    if (as_manual and not given) or len(given) > 1:
        sys.exit(__doc__)
    target = Path(given[0]) if given else ROOT / "docs" / "reference"
    target.mkdir(parents=True, exist_ok=True)
    if as_manual:
        from scripts.generate_docs.man_pages import man_pages

        moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
        pages = man_pages(time.strftime("%Y-%m-%d", moment))
    else:
        from scripts.generate_docs.pages import PAGES

        pages = {name: page() for name, page in PAGES.items()}
    for name, text in pages.items():
        (target / name).write_text(text, encoding="utf-8")


main()
