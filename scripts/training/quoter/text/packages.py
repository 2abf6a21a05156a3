"""The text a quoting model is trained on: documentation packages of Debian, fetched once into a folder."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

WORDNET = "wordnet-base"
PACKAGES = (
    "anarchism",
    "apache2-doc",
    "aptitude-doc-en",
    "debian-faq",
    "debian-handbook",
    "debian-policy",
    "debian-reference-en",
    "developers-reference",
    "dict-foldoc",
    "dict-gcide",
    "doc-debian",
    "git-doc",
    "gnome-user-docs",
    "harden-doc",
    "installation-guide-amd64",
    "libreoffice-help-en-us",
    "lilypond-doc-html",
    "octave-doc",
    "perl-doc",
    "postfix-doc",
    "sqlite3-doc",
    "vim-doc",
    WORDNET,
)
"""Prose in English on many matters, under names that do not change from release to release."""


class MissingText(Exception):
    """There is not the text to train on; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A package's file.

    Attributes:
        package: The package's name.
        path: Where the file is.
        sha256: Of the file, hexadecimal.
    """

    package: str
    path: Path
    sha256: str

    def members(self) -> Iterator[tuple[str, bytes]]:
        """Yields every regular file in it, path and contents, in the archive's order.

        Raises:
            MissingText: The file is no Debian package, or there is no ``dpkg-deb``.
        """
        command = ["dpkg-deb", "--fsys-tarfile", str(self.path)]
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as unpacking:
                assert unpacking.stdout is not None
                with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
                    for entry in files:
                        if entry.isreg() and (opened := files.extractfile(entry)) is not None:
                            yield entry.name, opened.read()
        except (OSError, tarfile.TarError) as error:
            raise MissingText(f"{self.path} cannot be read as a Debian package: {error}") from error


def fetch(folder: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Downloads the packages that are not in a folder yet.

    Args:
        folder: Made if it does not exist.
        packages: Names.

    Raises:
        MissingText: apt is not there, or could not fetch them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in packages if not list(folder.glob(f"{name}_*.deb"))]
    if not missing:
        return
    try:
        done = subprocess.run(
            ["apt-get", "download", *missing], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise MissingText(f"packages are fetched with apt-get, which does not run here: {error}") from error
    if done.returncode != 0:
        raise MissingText(
            f"apt-get download {' '.join(missing)} failed; try 'apt-get update' before, or put the packages' files "
            f"into {folder} yourself:\n{done.stderr.strip()[-1000:]}"
        )


def archives(folder: Path, packages: Sequence[str] = PACKAGES) -> list[Archive]:
    """Returns the packages' files in a folder, in the order of their names.

    Raises:
        MissingText: One is missing, or is there in two versions.
    """
    found = []
    for name in sorted(packages):
        paths = list(folder.glob(f"{name}_*.deb"))
        if not paths:
            raise MissingText(f"package {name} is not in {folder}; --fetch downloads what is missing")
        if len(paths) > 1:
            raise MissingText(f"keep one of {', '.join(sorted(path.name for path in paths))} in {folder}")
        found.append(Archive(name, paths[0], hashlib.sha256(paths[0].read_bytes()).hexdigest()))
    return found
