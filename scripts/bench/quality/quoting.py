"""Measures answers by quoting, by language, on translations of one SQuAD-format file or on a single one.

    python -m scripts.bench.quality.quoting                              # XQuAD's languages, each in itself
    python -m scripts.bench.quality.quoting --mixed en,de,ru,ar,zh       # and in one collection of these languages
    python -m scripts.bench.quality.quoting --data FILE --encoder models/minilm-l6 --half odd --json

Each paragraph becomes a document of a temporary data directory; each question is retrieved, reranked and answered as
the daemon does it. Printed, by language:

    right paragraph     share of the answers of one point that are of the paragraph that holds the answer
    gold in one, in two share of the answers of one point, or of up to two, that hold an accepted text
    gold as needed      share of the answers of as many points as they need that hold one
    one as needed       share of these answers that have one point
    turned away         share of all questions that get the not-found answer although their paragraph is there; they
                        have no answer in the columns before
    without its article share of the questions that get the not-found answer while their article is out

A mixed collection holds the parallel documents of all its languages, so that the right paragraph is there once in each;
a question is right only with the one in its own language. Ends with status 1 if a bound of ``BOUNDS`` does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.bootstrap.open_directory import OpenDirectory, open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.passage import Reranked, RerankRequest, RetrievalRequest
from edge_rag.errors import EdgeRagError
from edge_rag.generator.quote_generator import QuoteSettings
from edge_rag.generator.quoting.answer import points_of
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.token_vectors import TokenVectors
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.quality.answer_quality import Articles, Asked, read_articles
from scripts.bench.retrieval.languages import language_files

REPOSITORY: Final = Path(__file__).resolve().parents[3]
COLLECTION: Final = "measured"
CANDIDATES: Final = 20

Vectors = NDArray[np.float32]


class RememberedEncoder:
    """An encoder that computes each text once; allowed, as a text's vectors do not depend on its neighbours.

    Args:
        encoder: The encoder.
        folder: Where vectors are kept between runs, in files of this encoder; None: nowhere.
    """

    def __init__(self, encoder: TextEncoder, folder: Path | None) -> None:
        self._encoder = encoder
        self.name, self.dimension, self.max_tokens = encoder.name, encoder.dimension, encoder.max_tokens
        self._folder = folder
        self._known: dict[str, NDArray[np.generic]] = {}

    @contextmanager
    def remembering(self, name: str) -> Iterator[None]:
        """Has read the vectors that were kept under a name while the context is entered, and then keeps all of them."""
        self._known = {}
        if self._folder is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        identity = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        file = self._folder / f"{identity}-{name}.npz"
        if file.exists():
            with np.load(file) as kept:
                self._known = dict(kept)
        before = len(self._known)
        yield
        if len(self._known) > before:
            np.savez(file, allow_pickle=False, **self._known)

    def count_tokens(self, text: str) -> int:
        return self._encoder.count_tokens(text)

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._sentences("passage", texts, self._encoder.embed)

    def embed_questions(self, questions: Sequence[str]) -> Vectors:
        return self._sentences("question", questions, self._encoder.embed_questions)

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        return self._tokens("tokens", texts, self._encoder.token_vectors)

    def passage_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        return self._tokens("passage-tokens", texts, self._encoder.passage_tokens)

    def _tokens(
        self, kind: str, texts: Sequence[str], encode: Callable[[Sequence[str]], list[TokenVectors]]
    ) -> list[TokenVectors]:
        keys = [_key(kind, text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        for key, each in zip(new, encode(list(new.values())) if new else (), strict=True):
            self._known |= {key: each.vectors, f"{key}-offsets": each.offsets}
        return [
            TokenVectors(self._known[key].astype(np.float32), self._known[f"{key}-offsets"].astype(np.int32))
            for key in keys
        ]

    def _sentences(self, kind: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Vectors]) -> Vectors:
        keys = [_key(kind, text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if new:
            self._known.update(zip(new, embed(list(new.values())), strict=True))
        return np.array([self._known[key] for key in keys], np.float32).reshape(len(keys), self.dimension)


def _key(kind: str, text: str) -> str:
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Quality:
    """Shares of the answers or the questions, 0 to 1; see the head of the file."""

    right_paragraph: float
    gold_in_one: float
    gold_in_two: float
    gold_as_needed: float
    one_as_needed: float
    turned_away: float
    without_its_article: float


@dataclass(frozen=True, slots=True)
class Answered:
    """What a question got.

    Attributes:
        question: The question.
        found: What the reranker returned.
        term_weights: Weights of the question's terms in the collection.
    """

    question: Asked
    found: Reranked
    term_weights: Mapping[str, float]

    def turned_away(self) -> bool:
        """Whether it gets the not-found answer."""
        return self.found.evidence < QuoteSettings().not_found_below

    def quoted(self, points: int | None) -> list[tuple[str, str]]:
        """Returns (document, text) of each point, without what only tells its subject; none of the not-found answer.

        Args:
            points: Most points; None for as many as the answer needs.
        """
        passages = () if self.turned_away() else self.found.passages
        found = points_of(self.question.text, passages, points, QuoteSettings().margin, self.term_weights)
        return [(passages[each.quote.passage].passage.document, each.quote.text) for each in found]

    def cites(self) -> bool:
        return any(document == self.question.document for document, _ in self.quoted(1))

    def holds(self, points: int | None) -> bool:
        return any(answer in text for _, text in self.quoted(points) for answer in self.question.answers)


def quality(answered: Sequence[Answered], without: Sequence[Answered]) -> Quality:
    """Judges the answers.

    Args:
        answered: Answers to questions whose paragraph was there, at least one.
        without: Answers to the same ones without it.
    """
    answers = [each for each in answered if not each.turned_away()]
    return Quality(
        _share([each.cites() for each in answers]),
        _share([each.holds(1) for each in answers]),
        _share([each.holds(2) for each in answers]),
        _share([each.holds(None) for each in answers]),
        _share([len(each.quoted(None)) == 1 for each in answers]),
        _share([each.turned_away() for each in answered]),
        _share([each.turned_away() for each in without]),
    )


def _share(values: Sequence[bool]) -> float:
    return sum(values) / max(1, len(values))


class Box:
    """Retrieval and reranking of one data directory, with the settings of a daemon.

    Args:
        directory: The data directory.
        encoder: Embeds and reranks.
        passages: Passages whose sentences are offered.
    """

    def __init__(self, directory: OpenDirectory, encoder: RememberedEncoder, passages: int) -> None:
        self._directory = directory
        self._reranker = MaxSimReranker(encoder)
        self._passages = passages

    def put_in(self, documents: Mapping[str, str]) -> None:
        for name, text in documents.items():
            outcome = self._directory.library.ingest(Upload.of_bytes(COLLECTION, name, "text/plain", text.encode()))
            if outcome.status is not IngestStatus.ADDED:
                raise SystemExit(f"{name} was not taken: {outcome.reason}")

    def take_out(self, documents: Mapping[str, str]) -> None:
        for name in documents:
            self._directory.library.delete(COLLECTION, name)

    def ask(self, question: Asked) -> Answered:
        (found,) = self._directory.retriever.retrieve([RetrievalRequest(question.text, COLLECTION, CANDIDATES)])
        if isinstance(found, Exception):
            raise found
        (ranked,) = self._reranker.rerank([RerankRequest(question.text, found, self._passages)])
        return Answered(question, ranked, found.term_weights)


def ask_all(
    encoder: RememberedEncoder, read: Mapping[str, Articles], passages: int, console: Console
) -> dict[str, tuple[list[Answered], list[Answered]]]:
    """Returns the answers to the questions of each language, with their article and without it.

    Args:
        encoder: Embeds and reranks.
        read: What one collection holds, by language; translations of one file.
        passages: Passages whose sentences are offered.
        console: Where progress is shown.
    """
    name = "+".join(read)
    found: dict[str, tuple[list[Answered], list[Answered]]] = {language: ([], []) for language in read}
    with tempfile.TemporaryDirectory() as scratch:
        directory = open_data_directory(Path(scratch), encoder)
        try:
            box = Box(directory, encoder, passages)
            articles = [
                {
                    f"{language}/{name}": text
                    for language in read
                    for name, text in read[language].documents[number].items()
                }
                for number in range(len(next(iter(read.values())).documents))
            ]
            for documents in track(articles, f"{name}: ingesting", console=console):
                box.put_in(documents)
            for language, each in read.items():
                for question in track(each.questions, f"{name}: asking in {language}", console=console):
                    found[language][0].append(box.ask(question))
            for number, documents in enumerate(track(articles, f"{name}: without the article", console=console)):
                box.take_out(documents)
                for language, each in read.items():
                    for question in each.questions:
                        if question.article == number:
                            found[language][1].append(box.ask(question))
                box.put_in(documents)
        finally:
            directory.close()
    return found


def _translations(read: Mapping[str, Articles]) -> Iterator[dict[str, Mapping[str, str]]]:
    """Yields the documents of each article by language."""
    for number in range(min(len(each.documents) for each in read.values())):
        yield {language: each.documents[number] for language, each in read.items()}


@dataclass(frozen=True, slots=True)
class Bound:
    """What must hold: in every language, or on the mean of all but English.

    Attributes:
        column: A field of ``Quality``.
        every: Whether it must hold in every language.
        limit: The least that the value may be, or the most.
        most: Whether it is the most.
    """

    column: str
    every: bool
    limit: float
    most: bool = False

    def failures(self, found: Mapping[str, Quality]) -> list[str]:
        """Returns what does not hold, in words."""
        others = [each for language, each in found.items() if language != "en"] or list(found.values())
        values = {language: getattr(each, self.column) for language, each in found.items()}
        if not self.every:
            values = {"the mean": sum(getattr(each, self.column) for each in others) / len(others)}
        asked = f"asked is at {'most' if self.most else 'least'} {self.limit:.0%}"
        return [
            f"{self.column} of {name} is {value:.1%}, {asked}"
            for name, value in values.items()
            if (value > self.limit if self.most else value < self.limit)
        ]


BOUNDS: Final = (
    Bound("right_paragraph", every=True, limit=0.93),
    Bound("gold_in_one", every=False, limit=0.72),
    Bound("gold_in_two", every=False, limit=0.84),
    Bound("turned_away", every=True, limit=0.04, most=True),
    Bound("without_its_article", every=True, limit=0.85),
)


def print_table(title: str, found: Mapping[str, Quality]) -> None:
    table = Table(title=title)
    for heading in (
        "",
        "right paragraph",
        "gold in one",
        "gold in two",
        "gold as needed",
        "one as needed",
        "turned away",
        "without its article",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    for language, each in found.items():
        table.add_row(language, *(f"{share:.1%}" for share in asdict(each).values()))
    others = [each for language, each in found.items() if language != "en"]
    if len(others) > 1:
        means = [sum(getattr(each, field.name) for each in others) / len(others) for field in fields(Quality)]
        table.add_section()
        table.add_row("mean without en" if "en" in found else "mean", *(f"{share:.1%}" for share in means))
    Console().print(table)


def read_languages(data: Path, languages: Sequence[str], half: str) -> dict[str, Articles]:
    """Returns the articles of each language, or of a single file, with the questions of half of them.

    Raises:
        SystemExit: A file is not there or in another format.
    """
    files = language_files(data) if data.is_dir() else {data.stem: (data, 1)}
    chosen = languages or list(files)
    if not chosen or (missing := [language for language in chosen if language not in files]):
        raise SystemExit(
            f"{data} lacks {', '.join(missing) if chosen else 'LANG.json'}: name a file in SQuAD format, or a folder "
            "with LANG.json or xquad.LANG.json, with --data"
        )
    read = {}
    for language in chosen:
        path, step = files[language]
        try:
            articles = read_articles(path, step)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path} is not in SQuAD format: {error!r}") from error
        kept = {question.article for question in articles.questions}
        wanted = kept if half == "both" else {number for number in kept if number % 2 == (half == "odd")}
        questions = [
            replace(question, document=f"{language}/{question.document}")
            for question in articles.questions
            if question.article in wanted
        ]
        if not questions or len(articles.documents) < 2:
            raise SystemExit(f"{path}: needs questions with answers, and two articles to take one away from")
        read[language] = Articles(articles.documents, tuple(questions))
    return read


def main() -> None:
    """Reads the command line."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=shared / "data" / "xquad-a", help="folder with a file a language, or a file"
    )
    parser.add_argument("--languages", default="", help="which languages, apart by commas; without it, all there are")
    parser.add_argument("--mixed", default="", help="languages that one more collection mixes, apart by commas")
    parser.add_argument(
        "--half", choices=("both", "even", "odd"), default="both", help="articles whose questions count"
    )
    parser.add_argument(
        "--encoder", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small", help="model folder"
    )
    parser.add_argument("--passages", type=int, default=4, help="passages whose sentences are offered")
    parser.add_argument("--vectors", type=Path, help="folder where vectors are kept between runs")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()
    languages, mixed = ([name for name in given.split(",") if name] for given in (arguments.languages, arguments.mixed))
    read = read_languages(arguments.data, languages, arguments.half)
    together = read_languages(arguments.data, mixed, arguments.half) if mixed else {}
    console = Console(stderr=True)
    found: dict[str, Quality] = {}
    in_mixed: dict[str, Quality] = {}
    try:
        configure_thread_pool(arguments.threads)
        encoder = RememberedEncoder(TextEncoder.open(arguments.encoder), arguments.vectors)
        for language, each in read.items():
            with encoder.remembering(language):
                found[language] = quality(*ask_all(encoder, {language: each}, arguments.passages, console)[language])
        if together:
            with encoder.remembering("mixed"):
                for language, answers in ask_all(encoder, together, arguments.passages, console).items():
                    in_mixed[language] = quality(*answers)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        rows = {"alone": found, "mixed": in_mixed}
        print(
            json.dumps({name: {key: asdict(row) for key, row in each.items()} for name, each in rows.items()}, indent=2)
        )
    else:
        print_table(f"answers by quoting, {arguments.half} articles", found)
        if in_mixed:
            print_table(f"in one collection of {', '.join(in_mixed)}", in_mixed)
    failures = [failure for bound in BOUNDS for failure in bound.failures(found)]
    for failure in failures:
        console.print(f"FAILS: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
