"""Test collections: documents, questions, and how relevant which document is to which question; pure but for reading.

Two forms are read. BEIR's has ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``. SMART's, in which Cranfield
and CISI are handed on, has records of dotted fields: documents (``*.ALL`` or ``cran.all.1400``), questions (``*.QRY``)
and judgements (``*.REL`` or ``cranqrel``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_FIELD: Final = re.compile(r"\.([A-Z])\s*")
_IDENTIFIER: Final = re.compile(r"\.I\s+(\d+)\s*")
_CRANFIELD_GAINS: Final = {"-1": 4, "1": 4, "2": 3, "3": 2, "4": 1}
"""Cranfield's codes: 1 is a complete answer, 4 of minimum interest, 5 of none; -1 marks where the question is from."""


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question and the gain of each document that is relevant to it, above 0; the others have none."""

    text: str
    gains: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """A test collection."""

    documents: Mapping[str, str]
    questions: tuple[JudgedQuestion, ...]


def read_judged_set(folder: Path) -> JudgedSet:
    """Reads a folder in BEIR's or SMART's form."""
    try:
        if (folder / "corpus.jsonl").is_file():
            return _judged(*_beir(folder))
        return _judged(*_smart(folder))
    except (StopIteration, KeyError, ValueError) as error:
        raise SystemExit(
            f"{folder} is no test collection: it needs corpus.jsonl, queries.jsonl and qrels/test.tsv, or the files of "
            f"SMART's form that end in .ALL, .QRY and .REL ({error!r})"
        ) from error


def _judged(texts: Mapping[str, str], asked: Mapping[str, str], gains: Mapping[str, Mapping[str, float]]) -> JudgedSet:
    names = {key: f"document-{number:06d}.txt" for number, key in enumerate(texts)}
    questions = []
    for key, question in asked.items():
        relevant = {names[document]: gain for document, gain in gains.get(key, {}).items() if gain > 0}
        if relevant:
            questions.append(JudgedQuestion(question, relevant))
    return JudgedSet({names[key]: text for key, text in texts.items() if text}, tuple(questions))


def _beir(folder: Path) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, float]]]:
    texts = {
        str(each["_id"]): "\n\n".join(filter(None, (each.get("title"), each["text"])))
        for each in _json_lines(folder / "corpus.jsonl")
    }
    asked = {str(each["_id"]): str(each["text"]) for each in _json_lines(folder / "queries.jsonl")}
    gains: dict[str, dict[str, float]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines():
        question, document, score = line.split("\t")
        if score != "score" and document in texts:
            gains.setdefault(question, {})[document] = float(score)
    return texts, asked, gains


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:  # str.splitlines would also end a line at U+2028
        yield from map(json.loads, lines)


def _smart(folder: Path) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, float]]]:
    files = {path.name.lower(): path for path in sorted(folder.iterdir())}

    def file(*endings: str) -> Path:
        return next(path for name, path in files.items() if name.endswith(endings))

    texts: dict[str, str] = {}
    for key, fields in _records(file(".all", ".all.1400")):
        title, body = (" ".join(fields.get(field, "").split()) for field in ("T", "W"))
        # Cranfield repeats the title at the beginning of the abstract.
        texts[key] = f"{title}\n\n{body.removeprefix(title).strip()}".strip()
    cranfield = "cranqrel" in files
    questions = [(key, " ".join(fields["W"].split())) for key, fields in _records(file(".qry"))]
    # Cranfield's judgements number its questions in order, whatever the questions' own numbers are.
    asked = {str(number) if cranfield else key: text for number, (key, text) in enumerate(questions, start=1)}
    gains: dict[str, dict[str, float]] = {}
    for line in file("cranqrel", ".rel").read_text().splitlines():
        question, document, *rest = re.split(r"[\s,]+", line.strip())
        gain = _CRANFIELD_GAINS.get(rest[0], 0) if cranfield else 1
        if document in texts:
            gains.setdefault(question, {})[document] = float(gain)
    return texts, asked, gains


def _records(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the identifier and the fields of each record of a SMART file."""
    key, fields, field = "", dict[str, str](), ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if begun := _IDENTIFIER.fullmatch(line):
            if key:
                yield key, fields
            key, fields, field = begun[1], {}, ""
        elif named := _FIELD.fullmatch(line):
            field = named[1]
        elif field:
            fields[field] = fields.get(field, "") + line + "\n"
    if key:
        yield key, fields
