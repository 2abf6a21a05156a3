"""The sample documents, and what is asked about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from scripts.bench.harness.command import SAMPLES
from scripts.bench.harness.squad import Question

SAMPLE_QUESTIONS: Final = Path(__file__).with_name("sample_questions.json")
VALUE_QUESTIONS: Final = Path(__file__).with_name("value_questions.json")
"""Questions whose answer is a number, a quantity, a date or a name; written before any was asked."""


def sample_documents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(SAMPLES.iterdir()) if path.is_file()}


def value_questions() -> list[Question]:
    items = json.loads(VALUE_QUESTIONS.read_text("utf-8"))
    return [Question(each["question"], 0, each["document"], tuple(each["answers"])) for each in items]
