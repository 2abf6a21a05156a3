"""Data directories that older versions wrote."""

import tarfile
from pathlib import Path


def unpack(archive: Path, into: Path) -> None:
    with tarfile.open(archive) as opened:
        # The Python of Debian 12 cannot be told in the call what not to unpack.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(into)
