"""Package descriptions of a Debian archive: a line that says what a package is, and prose that says more."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_FIELD = re.compile(r"^([A-Za-z0-9-]+):[ \t]?(.*(?:\n[ \t].*)*)", re.MULTILINE)
_ENGLISH = ("-o", "Acquire::Languages=en")
_HELP = "run `apt-get -o Acquire::Languages=en update` once"


@dataclass(frozen=True, slots=True)
class Description:
    """What an archive says about a package.

    Attributes:
        package: Its name.
        source: Name of the source package, which packages of one project share.
        synopsis: One line.
        text: The long description without the synopsis; paragraphs apart by an empty line. May be empty.
    """

    package: str
    source: str
    synopsis: str
    text: str


def read_descriptions() -> list[Description]:
    """Reads what ``apt-cache dumpavail`` lists, one entry a package, by name.

    The archive keeps long descriptions apart, in its English translation; they are joined by their MD5.

    Raises:
        SystemExit: apt or its lists are not there, or hold no long descriptions.
    """
    try:
        packages = _output("apt-cache", "dumpavail")
        kept = _output("apt-get", *_ENGLISH, "indextargets", "Identifier: Translations", "--format", "$(FILENAME)")
        translations = [_output("/usr/lib/apt/apt-helper", "cat-file", path) for path in kept.splitlines()]
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"the package lists of a Debian system are needed: {error}; {_HELP}") from error
    found = join_descriptions(packages, translations)
    if not any(each.text for each in found):
        raise SystemExit(f"apt's lists hold no long descriptions: {_HELP}")
    return found


def join_descriptions(packages: str, translations: Iterable[str]) -> list[Description]:
    """Joins package records with translated descriptions.

    Args:
        packages: Records as ``apt-cache dumpavail`` prints them; of several of one name the first counts. A record that
            has its long description needs no translation.
        translations: Contents of ``Translation-en`` files.

    Returns:
        By name; those with neither a synopsis nor a text are left out.
    """
    long = {
        fields["Description-md5"]: fields["Description-en"]
        for content in translations
        for fields in _records(content)
        if "Description-md5" in fields and "Description-en" in fields
    }
    found: dict[str, Description] = {}
    for fields in _records(packages):
        name = fields.get("Package")
        own = fields.get("Description-en", fields.get("Description", ""))
        whole = own if "\n" in own else long.get(fields.get("Description-md5", ""), own)
        synopsis, _, body = whole.partition("\n")
        if name and whole and name not in found:
            source = fields.get("Source", name).partition(" ")[0]
            found[name] = Description(name, source, synopsis.strip(), _plain(body))
    return [found[name] for name in sorted(found)]


def _plain(body: str) -> str:
    """A long description without its markup: a leading space a line, a full stop for an empty line."""
    lines = ("" if line.strip() == "." else line[1:].rstrip() for line in body.splitlines())
    return "\n".join(lines).strip("\n")


def _records(content: str) -> Iterator[Mapping[str, str]]:
    for record in re.split(r"\n{2,}", content):
        if record.strip():
            yield dict(_FIELD.findall(record))


def _output(*command: str) -> str:
    arguments: Sequence[str] = command
    return subprocess.run(arguments, capture_output=True, check=True, text=True, errors="replace").stdout
