"""Opens an old database again and again, ended before the n-th change of a file; run with the shim preloaded.

migrating.py OLD ROOT STEP      for n = 1, 1 + STEP, ...: ROOT/n is what is left of a copy of OLD
"""

import shutil
import sys
from pathlib import Path

from edge_rag.storage.database import Database
from tests.faults.scenario import STOP, STOPPED, Shim, in_child


def migrate(folder: Path, moment: int) -> None:
    Shim().arm(folder, STOP, moment)
    Database(folder / "documents.sqlite3").close()


def main(old: Path, root: Path, step: int) -> None:
    number, status = 1, STOPPED
    while status == STOPPED:
        folder = root / str(number)
        shutil.copytree(old, folder)
        moment = number
        status = in_child(lambda folder=folder, moment=moment: migrate(folder, moment))  # type: ignore[misc]
        number += step
    if status:
        raise AssertionError(f"the run before {number} ended with {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
