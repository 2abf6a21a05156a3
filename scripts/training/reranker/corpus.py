"""The text that a reranker is trained on: Debian's package descriptions, and documentation that Python brings along."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Final

from edge_rag.core.text import sentence_spans
from scripts.bench.retrieval.descriptions import Description
from scripts.bench.retrieval.known_items import Part, findable, part_of

_LEAST_CHARACTERS: Final = 120
_MOST_CHARACTERS: Final = 1_200
_MOST_PUNCTUATION: Final = 0.08
_UNUSUAL = re.compile(r"[^\w\s.,;:'\"()/-]")
_SKIPPED: Final = frozenset({"test", "tests", "idlelib", "site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class TrainingText:
    """A passage that questions are made of.

    Attributes:
        origin: What texts that say nearly the same have in common: a source package, or a module.
        text: The passage; every paragraph is one line.
        synopsis: A line that says what it is about; empty if there is none.
    """

    origin: str
    text: str
    synopsis: str = ""

    def sentences(self) -> list[str]:
        """The passage's sentences, in order."""
        return [self.text[start:end] for start, end in sentence_spans(self.text)]


def package_texts(descriptions: Sequence[Description]) -> list[TrainingText]:
    """Descriptions that may be trained on: none of a source package that known-item search is measured with."""
    allowed = [each for each in findable(descriptions) if part_of(each) is Part.TRAINING]
    return [TrainingText(f"package {each.source}", reflow(each.text), each.synopsis) for each in allowed]


def documentation_texts() -> list[TrainingText]:
    """Paragraphs of prose from Python's language reference and its library's docstrings, each once."""
    library = Path(sysconfig.get_path("stdlib"))
    sources = [("reference", text) for text in topics.values()]
    sources += [(f"module {path.stem}", text) for path in _modules(library) for text in _docstrings(path)]
    return list({each.text: each for each in _prose(sources)}.values())


def reflow(text: str) -> str:
    """Joins the wrapped lines of each paragraph; indented lines, such as those of lists, stay lines of their own."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n".join(re.sub(r"[ \t]+", " ", re.sub(r"\n(?=\S)", " ", each)).strip() for each in paragraphs)


def _prose(sources: Iterable[tuple[str, str]]) -> Iterator[TrainingText]:
    for origin, text in sources:
        for paragraph in re.split(r"\n\s*\n", text):
            joined = " ".join(paragraph.split())
            unusual = len(_UNUSUAL.findall(joined))
            if _LEAST_CHARACTERS <= len(joined) <= _MOST_CHARACTERS and unusual <= _MOST_PUNCTUATION * len(joined):
                yield TrainingText(origin, joined)


def _modules(library: Path) -> list[Path]:
    found = (path for path in library.rglob("*.py") if not _SKIPPED & set(path.relative_to(library).parts))
    return sorted(path for path in found if path.stat().st_size < 400_000)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
