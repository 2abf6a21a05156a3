"""Questions and paragraphs of files in SQuAD format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Question:
    """A question; ``article`` is the 0-based position of its article, ``document`` the paragraph that answers it."""

    text: str
    article: int
    document: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Articles:
    """A file: each article's paragraphs by document name, and the questions that can be answered, in its order."""

    documents: tuple[Mapping[str, str], ...]
    questions: tuple[Question, ...]

    @property
    def texts(self) -> dict[str, str]:
        return {name: text for documents in self.documents for name, text in documents.items()}


def read_articles(path: Path, step: int = 1) -> Articles:
    """Reads the first of every ``step`` articles, version 1 or 2; a paragraph that is repeated is one document."""
    documents: list[dict[str, str]] = []
    questions: list[Question] = []
    names: dict[str, str] = {}
    try:
        for number, article in enumerate(json.loads(path.read_text(encoding="utf-8"))["data"][::step]):
            documents.append({})
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                if context not in names:
                    names[context] = f"article-{number:03d}/paragraph-{len(documents[-1]):03d}.txt"
                    documents[-1][names[context]] = context
                questions += (
                    Question(
                        asked["question"], number, names[context], tuple(each["text"] for each in asked["answers"])
                    )
                    for asked in paragraph["qas"]
                    if asked["answers"]
                )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is not in SQuAD format: {error!r}") from error
    if not questions or len(documents) < 2:
        raise SystemExit(f"{path}: needs questions with answers, and two articles to take one away from")
    return Articles(tuple(documents), tuple(questions))


def read_languages(folder: Path, languages: list[str] | None = None) -> dict[str, Articles]:
    """Reads translations: LANG.json, or the even-numbered articles of xquad.LANG.json; all languages unless named."""
    files = {path.name.split(".")[1]: (path, 2) for path in sorted(folder.glob("xquad.*.json"))}
    files = files or {path.stem: (path, 1) for path in sorted(folder.glob("??.json"))}
    wanted = languages or list(files)
    if not wanted or (missing := [language for language in wanted if language not in files]):
        lacking = ", ".join(missing) if wanted else "LANG.json"
        raise SystemExit(f"{folder} lacks {lacking}: name a folder with LANG.json or xquad.LANG.json with --data")
    return {language: read_articles(*files[language]) for language in wanted}
