"""Runs failed tests once more, each alone; ``scripts/test --all`` calls it.

    python -m scripts.run_again FILE     FILE has a line of JSON for each failure (pytest --failures=FILE)
    python -m scripts.run_again --check  fails if tests/flaky.txt still has what it had a commit ago

A test that passes alone is flaky: it is printed with its first failure and added to tests/flaky.txt, which is committed
with the change at hand. The next change mends it and takes it out again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

_FLAKY: Final = Path("tests/flaky.txt")
_FAILED: Final = 1


def main(argument: str) -> int:
    if argument == "--check":
        return _check()
    path = Path(argument)
    failures = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    first: dict[str, str] = {}
    for failure in failures:
        first.setdefault(failure["test"], failure["text"])
    flaky: list[str] = []
    failed: list[str] = []
    for test in first:
        print(f"once more, alone: {test}", flush=True)
        ended = subprocess.run([sys.executable, "-m", "pytest", "-q", test], check=False).returncode
        (failed if ended else flaky).append(test)
    for test in flaky:
        print(f"\nflaky: {test}, which first failed with\n{first[test]}")
    if flaky:
        with _FLAKY.open("a") as file:
            file.writelines(f"{test}  # {_last_line(first[test])}\n" for test in flaky)
        print(f"\n{len(flaky)} flaky, in {_FLAKY}: commit it; the next change has to mend them")
    for test in failed:
        print(f"failed twice: {test}")
    return _FAILED if failed else 0


def _check() -> int:
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD"], check=False).returncode
    before = f"{'HEAD' if dirty else 'HEAD~1'}:{_FLAKY}"
    shown = subprocess.run(["git", "show", before], capture_output=True, text=True, check=False).stdout
    now = _FLAKY.read_text().splitlines() if _FLAKY.exists() else []
    left = sorted(line for line in set(shown.splitlines()) & set(now) if not line.startswith("#"))
    if left:
        print("\n".join([f"mend these and take them out of {_FLAKY}:", *left]), file=sys.stderr)
    return _FAILED if left else 0


def _last_line(text: str) -> str:
    reasons = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (reasons or text.splitlines() or [""])[0][:200]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
