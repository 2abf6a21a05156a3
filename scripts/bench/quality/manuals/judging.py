"""Questions over manuals, what can be told of an answer mechanically, and the verdicts of a reader; pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SETS: Final = ("seen", "held_out")
"""Sets of questions; those of the first one were answered and judged while the product was changed."""

_QUESTIONS: Final = "questions.json"
_VERDICTS: Final = "verdicts.json"
_HASH_CHARACTERS: Final = 16
_SAME: Final = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "‐": "-", "‑": "-", "\xa0": " "})


@dataclass(frozen=True, slots=True)
class Question:
    """A question; ``subject`` and each of ``facts`` are texts of which one the answer holds, in order for steps."""

    id: str
    kind: str
    language: str
    document: str
    text: str
    subject: tuple[str, ...]
    facts: tuple[tuple[str, ...], ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class Mechanical:
    """What a program can tell of an answer.

    Attributes:
        missing: Expected facts that are not there.
        in_order: Whether the steps that are there come in order; True where order does not matter.
        subject: Whether the subject is named.
    """

    missing: tuple[str, ...]
    in_order: bool
    subject: bool

    @property
    def holds(self) -> bool:
        return not self.missing and self.in_order and self.subject


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reader said of one answer, by the rubric in the README beside this file."""

    right: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer with all that is known of it."""

    question: Question
    answer: str
    mechanical: Mechanical
    verdict: Verdict | None


def folder_of(questions: str) -> Path:
    return Path(__file__).parent / questions


def read_questions(folder: Path) -> tuple[Question, ...]:
    """Reads the questions of a set."""
    return tuple(
        Question(
            each["id"],
            each["kind"],
            each["language"],
            each["document"],
            each["question"],
            tuple(each["subject"]),
            tuple(tuple(alternatives) for alternatives in each["facts"]),
            each.get("ordered", False),
        )
        for each in json.loads((folder / _QUESTIONS).read_text(encoding="utf-8"))["questions"]
    )


def read_verdicts(folder: Path) -> dict[str, dict[str, Verdict]]:
    """Reads the verdicts of a set by question and hash of the answer; none if there are none yet."""
    file = folder / _VERDICTS
    if not file.exists():
        return {}
    return {
        question: {key: Verdict(**each) for key, each in answers.items()}
        for question, answers in json.loads(file.read_text(encoding="utf-8")).items()
    }


def add_verdicts(sheet: Path, folder: Path) -> int:
    """Adds what a reader wrote in the report's JSON form, in the fields ``right`` and ``why``; returns how many."""
    verdicts = read_verdicts(folder)
    added = 0
    for each in json.loads(sheet.read_text(encoding="utf-8"))["answers"]:
        if each["right"] is not None:
            verdicts.setdefault(each["id"], {})[each["hash"]] = Verdict(each["right"], each["why"])
            added += 1
    lines = []
    for question, answers in sorted(verdicts.items()):
        records = json.dumps({key: _record(one) for key, one in answers.items()}, ensure_ascii=False)
        lines.append(f"  {json.dumps(question)}: {records}")
    (folder / _VERDICTS).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return added


def _record(verdict: Verdict) -> dict[str, object]:
    return {"right": verdict.right} | ({"why": verdict.why} if verdict.why else {})


def hash_of(answer: str) -> str:
    return hashlib.sha256(_plain(answer).encode()).hexdigest()[:_HASH_CHARACTERS]


def look_at(question: Question, answer: str) -> Mechanical:
    text = _plain(answer)
    places = [_first(text, alternatives) for alternatives in question.facts]
    missing = tuple(facts[0] for facts, place in zip(question.facts, places, strict=True) if place is None)
    in_order = not question.ordered or _in_order(text, question.facts)
    return Mechanical(missing, in_order, _first(text, question.subject) is not None)


def _in_order(text: str, facts: Sequence[tuple[str, ...]]) -> bool:
    """Tells whether each fact that is there occurs again after the one before it, as a word may also come earlier."""
    after = 0
    for alternatives in facts:
        if _first(text, alternatives) is None:
            continue
        place = _first(text, alternatives, after)
        if place is None:
            return False
        after = place
    return True


def _first(text: str, alternatives: Iterable[str], start: int = 0) -> int | None:
    places = [text.find(_plain(each), start) for each in alternatives]
    return min((place for place in places if place >= 0), default=None)


def _plain(text: str) -> str:
    return " ".join(text.translate(_SAME).split()).casefold()


def judge(
    questions: Sequence[Question], answers: Sequence[str], verdicts: Mapping[str, Mapping[str, Verdict]]
) -> tuple[Judged, ...]:
    """Puts questions, answers and what is known of them together, in the order of the questions."""
    return tuple(
        Judged(question, answer, look_at(question, answer), verdicts.get(question.id, {}).get(hash_of(answer)))
        for question, answer in zip(questions, answers, strict=True)
    )


def as_json(judged: Sequence[Judged]) -> str:
    """Returns the report that a program reads, which is also the sheet that the reader fills in."""
    rows = [
        {
            "id": each.question.id,
            "question": each.question.text,
            "expected": [" | ".join(alternatives) for alternatives in each.question.facts],
            "answer": each.answer,
            "hash": hash_of(each.answer),
            "missing": each.mechanical.missing,
            "in_order": each.mechanical.in_order,
            "subject": each.mechanical.subject,
            "right": None if each.verdict is None else each.verdict.right,
            "why": "" if each.verdict is None else each.verdict.why,
        }
        for each in judged
    ]
    return json.dumps({"answers": rows}, ensure_ascii=False, indent=1) + "\n"


def as_markdown(judged: Sequence[Judged]) -> str:
    """Returns the report that a person reads: figures, then each question with its answer and verdicts."""
    lines = ["# Answers over manuals", "", "| kind | questions | mechanical | read | right |", "|---|---|---|---|---|"]
    kinds = Counter(each.question.kind for each in judged)
    for kind in (*kinds, ""):
        some = [each for each in judged if not kind or each.question.kind == kind]
        read = [each.verdict for each in some if each.verdict is not None]
        lines.append(
            f"| {kind or 'all'} | {len(some)} | {sum(each.mechanical.holds for each in some)} | {len(read)} "
            f"| {sum(verdict.right for verdict in read)} |"
        )
    for each in judged:
        lines += ["", f"## {each.question.id}: {each.question.text}", "", f"Expected in {each.question.document}:"]
        lines += [f"- {' | '.join(alternatives)}" for alternatives in each.question.facts]
        faults = [f"missing {fact!r}" for fact in each.mechanical.missing]
        faults += [] if each.mechanical.in_order else ["not in order"]
        faults += [] if each.mechanical.subject else ["subject not named"]
        verdict = (
            "not read" if each.verdict is None else "right" if each.verdict.right else f"wrong: {each.verdict.why}"
        )
        lines += ["", "```text", each.answer.rstrip("\n"), "```", ""]
        lines += [f"Mechanical: {', '.join(faults) or 'holds'}", "", f"Reader: {verdict}"]
    return "\n".join(lines) + "\n"
