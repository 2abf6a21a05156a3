"""Questions and paragraphs of a file in SQuAD format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the document that answers it, the answers it accepts, and the number of its article from 0."""

    text: str
    document: str
    answers: tuple[str, ...]
    article: int = 0


def read_squad(path: Path, step: int = 1) -> tuple[dict[str, str], list[Question]]:
    """Returns the paragraphs by document name, and the questions, of the first of every ``step`` articles."""
    documents: dict[str, str] = {}
    questions: list[Question] = []
    for number, article in enumerate(json.loads(path.read_text(encoding="utf-8"))["data"][::step]):
        for paragraph in article["paragraphs"]:
            name = f"paragraph-{len(documents):04d}.txt"
            documents[name] = paragraph["context"]
            questions.extend(
                Question(asked["question"], name, tuple(answer["text"] for answer in asked["answers"]), number)
                for asked in paragraph["qas"]
            )
    return documents, questions
