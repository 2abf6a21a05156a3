"""Known-item search in the Debian archive: a synopsis is the question, the long description the document."""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scripts.bench.retrieval.judged_sets import JudgedQuestion, JudgedSet

LEAST_WORDS: Final = 8
"""A description of fewer words is left out: nearly all of these only say which kind of package it is."""

_DOCUMENTS: Final = 3_000
_SEED: Final = 7
_PARTS: Final = 10
"""Questions are of two in ten packages, by a hash of the source package's name."""

_WORD: Final = re.compile(r"[^\W_]+")
_FIELD: Final = re.compile(r"^([A-Za-z0-9-]+):[ \t]?(.*(?:\n[ \t].*)*)", re.MULTILINE)
_ENGLISH: Final = ("-o", "Acquire::Languages=en")
_HELP: Final = "run `apt-get -o Acquire::Languages=en update` once"


@dataclass(frozen=True, slots=True)
class Description:
    """What an archive says about a package; ``text`` is without the synopsis and may be empty."""

    package: str
    source: str
    synopsis: str
    text: str


def known_items() -> JudgedSet:
    """Draws documents and questions; equal archives give equal ones."""
    drawn = random.Random(_SEED).sample(found := findable(read_descriptions()), min(_DOCUMENTS, len(found)))
    documents = {f"{each.package}.txt": each for each in sorted(drawn, key=lambda each: each.package)}
    # A synopsis that several of the documents have is no question: which one it means cannot be known.
    times = Counter(_folded(each.synopsis) for each in drawn)
    asked = [
        JudgedQuestion(each.synopsis, {name: 1.0})
        for name, each in documents.items()
        if hashlib.sha256(each.source.encode()).digest()[0] % _PARTS < 2
        and times[_folded(each.synopsis)] == 1
        and _WORD.search(each.synopsis)
    ]
    random.Random(_SEED).shuffle(asked)
    return JudgedSet({name: each.text for name, each in documents.items()}, tuple(asked))


def findable(descriptions: Sequence[Description]) -> list[Description]:
    """Returns those that differ from all others and have at least ``LEAST_WORDS`` words; of equal texts the first."""
    distinct: dict[str, Description] = {}
    for description in descriptions:
        if len(_WORD.findall(description.text)) >= LEAST_WORDS:
            distinct.setdefault(" ".join(description.text.split()), description)
    return list(distinct.values())


def _folded(synopsis: str) -> str:
    return " ".join(_WORD.findall(synopsis.lower()))


def read_descriptions() -> list[Description]:
    """Reads what ``apt-cache dumpavail`` lists; the archive keeps long descriptions apart, joined by their MD5."""
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
    """Joins package records with ``Translation-en`` files, by name; of several records of one name the first counts."""
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
    return subprocess.run(command, capture_output=True, check=True, text=True, errors="replace").stdout
