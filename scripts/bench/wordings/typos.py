"""Measures how well questions with misspelled words find their paragraphs.

    python -m scripts.bench.wordings.typos ../shared/data/xquad-a/en.json
    python -m scripts.bench.wordings.typos ../shared/data/xquad-a --languages en,de,es,fr,ru --rerank --articles odd

In a SQuAD-format file each paragraph becomes a document. Every question is asked as it is, with one and with two random
edits in each of its content words, and with one edit in one of them: a letter inserted, deleted, replaced, or exchanged
with the next (Damerau, 1964), seeded. Content words are those without a digit that are no English function words and
that at most half of the passages have. Printed are recall@5 of the question's paragraph without corrections (as before)
and with them, the share of questions that were corrected, and of corrected words the share that got the term of the
right one. Of clean questions each correction is a needless one, but for errors in the data.

With --foreign FOLDER the questions of other languages are asked of the documents too; nothing of these is to be
corrected.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import unittest.mock
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from edge_rag.analysis.terms import word_term, words_of
from edge_rag.bootstrap.open_directory import OpenDirectory, RetrieverOptions
from edge_rag.core.passage import RerankRequest, RetrievalRequest, Retrieved
from edge_rag.errors import EdgeRagError
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from scripts.bench.harness.squad import Question, read_squad
from scripts.bench.retrieval.collection import COLLECTION, opened_collection

REPOSITORY: Final = Path(__file__).resolve().parents[3]
DEPTH: Final = 5
CANDIDATES: Final = 20
COMMON_SHARE: Final = 0.5
LETTER_SHARE: Final = 1 / 2000
"""Letters that are more frequent than this are inserted."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question, as it is and as it is asked."""

    question: Question
    asked: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Recall@5 without and with corrections, share of questions corrected, and share of corrected words right."""

    before: float
    ours: float
    corrected: float
    right: float | None


class Writer:
    """Makes typing errors in questions.

    Args:
        texts: Documents, which tell letters and common words.
        seed: Of the errors.
    """

    def __init__(self, texts: Iterable[str], seed: int) -> None:
        documents = [[word.term for word in words_of(text)] for text in texts]
        letters = Counter(letter for words in documents for word in words for letter in word)
        self._letters = sorted(letter for letter, count in letters.items() if count > letters.total() * LETTER_SHARE)
        counts = Counter(word for words in documents for word in set(words))
        self._common = {word for word, count in counts.items() if count > COMMON_SHARE * len(documents)}
        self._seed = seed

    def in_each(self, question: str, edits: int) -> str:
        """Returns a question with so many edits in each of its content words."""
        return self._edited(question, self._content(question), edits, f"{self._seed}/{edits}/{question}")

    def in_one(self, question: str) -> str:
        """Returns a question with an edit in one of its content words."""
        chosen = random.Random(f"{self._seed}/{question}").sample(self._content(question), k=1)
        return self._edited(question, chosen, 1, f"{self._seed}/one/{question}")

    def _content(self, question: str) -> list[tuple[int, int]]:
        words = [each for each in words_of(question) if each.term not in ENGLISH_FUNCTION_WORDS | self._common]
        return [(start, end) for start, end, _ in words]

    def _edited(self, question: str, places: Sequence[tuple[int, int]], edits: int, seed: str) -> str:
        source = random.Random(seed)
        parts, at = [], 0
        for start, end in places:
            word = question[start:end]
            for _ in range(edits):
                word = self._edit(word, source)
            parts += [question[at:start], word]
            at = end
        return "".join((*parts, question[at:]))

    def _edit(self, word: str, source: random.Random) -> str:
        while True:
            at, letter = source.randrange(len(word) + 1), source.choice(self._letters)
            edited = (
                word[:at] + letter + word[at:],
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at + 1 :] if at < len(word) else word,
                word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :],
            )[source.randrange(4)]
            if edited and edited != word:
                return edited


@contextmanager
def uncorrected() -> Iterator[None]:
    """Switches corrections off."""
    with unittest.mock.patch("edge_rag.retriever.wordings.compose.corrected", return_value=None):
        yield


class Search:
    """Finds the paragraphs of questions as the product does."""

    def __init__(self, directory: OpenDirectory, reranker: MaxSimReranker | None) -> None:
        self._retriever = directory.retriever
        self._reranker = reranker

    def find(self, question: str) -> tuple[Retrieved, list[str]]:
        """Returns the retriever's result, and the documents found, best first.

        Raises:
            EdgeRagError: A stage failed.
        """
        (found,) = self._retriever.retrieve([RetrievalRequest(question, COLLECTION, CANDIDATES)])
        if isinstance(found, Exception):
            raise found
        if self._reranker is None:
            return found, list(dict.fromkeys(hit.passage.document for hit in found.hits))
        main = question if found.wordings is None else found.wordings.main
        (ranked,) = self._reranker.rerank([RerankRequest(main, found, CANDIDATES)])
        return found, list(dict.fromkeys(each.passage.document for each in ranked.passages))

    def measure(
        self, cases: Sequence[Case], show: Callable[[str], None] | None, name: str, console: Console
    ) -> Figures:
        """Measures questions; ``show`` is given each that was corrected."""
        hits = {True: 0, False: 0}
        corrected = changed = right = 0
        for case in track(cases, name, console=console):
            for is_ours in hits:
                with nullcontext() if is_ours else uncorrected():
                    found, documents = self.find(case.asked)
                hits[is_ours] += case.question.document in documents[:DEPTH]
                if is_ours and found.wordings is not None and found.wordings.corrected is not None:
                    corrected += 1
                    counts = compared(case, found.wordings.corrected)
                    changed, right = changed + counts[0], right + counts[1]
                    if show is not None:
                        show(f"{case.asked} -> {found.wordings.corrected}")
        total = len(cases)
        return Figures(hits[False] / total, hits[True] / total, corrected / total, right / changed if changed else None)


def compared(case: Case, corrected: str) -> tuple[int, int]:
    """Returns the number of changed words, and of those with the term of the right one; none if words were joined."""
    clean, asked, ours = (
        [word.term for word in words_of(text)] for text in (case.question.text, case.asked, corrected)
    )
    if not len(clean) == len(asked) == len(ours):
        return 0, 0
    changes = [(meant, new) for meant, old, new in zip(clean, asked, ours, strict=True) if old != new]
    return len(changes), sum(word_term(meant) == word_term(new) for meant, new in changes)


def chosen_questions(path: Path, articles: str) -> tuple[dict[str, str], list[Question]]:
    """Returns all paragraphs, and the questions of the articles of even or odd number, or of all."""
    documents, questions = read_squad(path)
    sizes = [len(article["paragraphs"]) for article in json.loads(path.read_text(encoding="utf-8"))["data"]]
    of_article = [number for number, size in enumerate(sizes) for _ in range(size)]
    names = dict(zip(documents, of_article, strict=True))
    wanted = {"even": {0}, "odd": {1}, "all": {0, 1}}[articles]
    return documents, [question for question in questions if names[question.document] % 2 in wanted]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a SQuAD-format file, or a folder with LANG.json")
    parser.add_argument("--languages", default="en", help="which files of a folder, apart by commas")
    parser.add_argument("--foreign", help="other languages of the folder whose questions are asked too")
    parser.add_argument("--articles", choices=("even", "odd", "all"), default="all")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small")
    parser.add_argument("--rerank", action="store_true", help="measure the order of the reranker")
    parser.add_argument("--limit", type=int, help="questions a language, evenly drawn; without it, all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the corrections of clean questions")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    files = {each: arguments.data / f"{each}.json" for each in arguments.languages.split(",")}
    if arguments.data.is_file():
        files = {arguments.data.stem: arguments.data}
    console = Console(stderr=True)
    measured: dict[str, dict[str, Figures]] = {}
    try:
        encoder = TextEncoder.open(arguments.encoder)
        reranker = MaxSimReranker(encoder) if arguments.rerank else None
        for language, path in files.items():
            documents, questions = chosen_questions(path, arguments.articles)
            questions = questions[:: max(1, len(questions) // arguments.limit) if arguments.limit else 1]
            writer = Writer(documents.values(), arguments.seed)
            cases = {
                "clean": [Case(each, each.text) for each in questions],
                "one edit in one word": [Case(each, writer.in_one(each.text)) for each in questions],
                "one edit a word": [Case(each, writer.in_each(each.text, 1)) for each in questions],
                "two edits a word": [Case(each, writer.in_each(each.text, 2)) for each in questions],
            }
            for other in (arguments.foreign or "").split(","):
                if other and other != language:
                    asked = chosen_questions(arguments.data / f"{other}.json", arguments.articles)[1]
                    cases[f"asked in {other}"] = [Case(each, each.text) for each in asked]
            with (
                tempfile.TemporaryDirectory() as scratch,
                opened_collection(Path(scratch), encoder, RetrieverOptions(), documents, console) as directory,
            ):
                search = Search(directory, reranker)
                measured[language] = {
                    name: search.measure(
                        each, print if arguments.show and name == "clean" else None, f"{language}: {name}", console
                    )
                    for name, each in cases.items()
                }
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        rows = {language: {name: asdict(each) for name, each in rows.items()} for language, rows in measured.items()}
        print(json.dumps(rows))
        return
    table = Table("questions", "recall@5 before", "recall@5 now", "corrected", "right words")
    for language, figures in measured.items():
        for name, each in figures.items():
            shares = (each.before, each.ours, each.corrected, each.right)
            table.add_row(f"{language}: {name}", *("" if share is None else f"{share:.3f}" for share in shares))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
