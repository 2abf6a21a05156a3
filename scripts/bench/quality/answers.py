"""Measures the answers of a daemon with its defaults on a SQuAD-format file, over gRPC.

    python -m scripts.bench.quality.answers [--data FILE] [--plot FILE] [--json]

Each paragraph becomes a document and all questions are asked, with one sentence and with up to two. Printed: how many
get the not-found answer; of the answers and of all questions, how many cite the paragraph that holds the answer, how
many are the cited text and nothing else, and how many contain a text that the question accepts.

Then the not-found curve: each article's documents are taken out, its questions are asked of all the others, and the
documents are put back. Of these questions and of those that have an answer, the share that a threshold on the evidence
turns away. Ends with status 1 if a bound does not hold.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.client import AskOptions, Client, ClientError, PassagesReceived, RetryPolicy
from edge_rag.core.answer import Citation, Finished, FinishReason, TextDelta
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.ids import require_recognized
from edge_rag.generator.quote_generator import QuoteSettings
from scripts.bench.harness.daemon import DaemonFailed, running
from scripts.bench.quality.answer_quality import Articles, Asked, Given, Summary, judge, read_articles, summarize
from scripts.bench.quality.not_found import LEAST_TURNED_AWAY, MOST_LOST, Point, curve, plot, separation

REPOSITORY = Path(__file__).resolve().parents[3]
SENTENCES = (1, 2)
FINE = [step / 200 for step in range(201)]
COARSE = [step / 20 for step in range(21)]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A way to answer that was measured before; shares of all questions, 0 to 1, None where not measured."""

    name: str
    cites: float
    contains: float
    contains_in_two: float | None
    verbatim: float


BASELINES_SOURCE = (
    "baselines recorded with the first experiments: 500 to 600 XQuAD questions, the right paragraph always given"
)
BASELINES = (
    Baseline("small model, free", 0.81, 0.57, None, 0.81),
    Baseline("small model, held to sentences", 0.86, 0.62, None, 1.0),
    Baseline("no model, best IDF overlap", 0.99, 0.80, None, 1.0),
    Baseline("no model, overlap + max-sim", 0.997, 0.825, 0.917, 1.0),
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What must hold.

    Attributes:
        name: Of what.
        found: The share that was found.
        least: The least that it may be.
    """

    name: str
    found: float
    least: float

    @property
    def holds(self) -> bool:
        return self.found >= self.least


@dataclass(frozen=True, slots=True)
class NotFound:
    """The not-found curve.

    Attributes:
        default: What the daemon did with its own threshold.
        separation: Area under the ROC curve, 0 to 1.
        points: What other thresholds would do, ascending.
    """

    default: Point
    separation: float
    points: tuple[Point, ...]


def ask(client: Client, question: str, sentences: int) -> Given:
    text, citations, evidence = "", [], 0.0
    for event in client.ask(question, AskOptions(max_sentences=sentences)):
        match event:
            case PassagesReceived():
                evidence = event.evidence
            case TextDelta():
                text += event.text
            case Citation():
                citations.append(event)
            case Finished():
                return Given(text, tuple(citations), require_recognized(event.reason), evidence)
    raise AssertionError("the client yields Finished or raises")


def ask_all(client: Client, questions: Sequence[Asked], sentences: int, concurrency: int) -> Iterator[Given]:
    """Yields the answers in the order of the questions."""
    with ThreadPoolExecutor(concurrency) as pool:
        yield from pool.map(lambda question: ask(client, question.text, sentences), questions)


def put_in(client: Client, documents: Mapping[str, str]) -> None:
    for name, text in documents.items():
        outcome = client.ingest(name, partial(io.BytesIO, text.encode()), media_type="text/plain")
        if outcome.status is not IngestStatus.ADDED:
            raise SystemExit(f"{name} was not taken: {outcome.reason}")


def measure_answers(client: Client, articles: Articles, concurrency: int, console: Console) -> dict[int, list[Given]]:
    """Returns the answers to all questions, by the most sentences allowed."""
    for documents in track(articles.documents, "ingesting", console=console):
        put_in(client, documents)
    answers = {}
    for sentences in SENTENCES:
        given = ask_all(client, articles.questions, sentences, concurrency)
        title = f"asking, up to {sentences}"
        answers[sentences] = list(track(given, title, total=len(articles.questions), console=console))
    return answers


def ask_without(client: Client, articles: Articles, concurrency: int, console: Console) -> list[Given]:
    """Returns what each article's questions get while its documents are out."""
    answers: list[Given] = []
    for number, documents in enumerate(track(articles.documents, "asking without the article", console=console)):
        for name in documents:
            client.delete(name)
        questions = [question for question in articles.questions if question.article == number]
        answers += ask_all(client, questions, 1, concurrency)
        put_in(client, documents)
    return answers


def not_found(answerable: Sequence[Given], unanswerable: Sequence[Given]) -> NotFound:
    with_answer = [given.evidence for given in answerable]
    without = [given.evidence for given in unanswerable]
    default = Point(QuoteSettings().not_found_below, _turned_away(answerable), _turned_away(unanswerable))
    return NotFound(default, separation(with_answer, without), curve(with_answer, without, FINE))


def _turned_away(answers: Sequence[Given]) -> float:
    return sum(given.reason is FinishReason.NOT_FOUND for given in answers) / len(answers)


def bounds(summaries: dict[int, Summary], curve: NotFound) -> list[Bound]:
    one, two = summaries[1], summaries[2]
    return [
        Bound("answers that cite the right paragraph", one.of_answers.cites, 0.95),
        Bound("the same, up to two sentences", two.of_answers.cites, 0.95),
        Bound("verbatim answers", min(one.of_answers.verbatim, two.of_answers.verbatim), 1.0),
        Bound("answers that contain an accepted text", one.of_answers.contains, 0.80),
        Bound("the same, up to two sentences", two.of_answers.contains, 0.88),
        Bound("unanswerable questions turned away", curve.default.unanswerable, LEAST_TURNED_AWAY),
        Bound("answerable questions not turned away", 1 - curve.default.answerable, 1 - MOST_LOST),
    ]


def print_tables(summaries: dict[int, Summary], found: NotFound, kept: Sequence[Bound], articles: Articles) -> None:
    console = Console()
    documents = sum(len(each) for each in articles.documents)
    table = Table(title=f"{len(articles.questions)} questions, {documents} documents")
    for heading in ("", "not found", "cites the paragraph", "verbatim", "contains an answer"):
        table.add_column(heading, justify="left" if not heading else "right")
    for sentences, summary in summaries.items():
        name = "one sentence" if sentences == 1 else f"up to {sentences} sentences"
        for of, shares in (("of answers", summary.of_answers), ("of all questions", summary.of_questions)):
            cells = (shares.cites, shares.verbatim, shares.contains)
            table.add_row(f"{name}, {of}", f"{summary.not_found:.1%}", *(f"{cell:.1%}" for cell in cells))
    table.add_section()
    for row in BASELINES:
        in_two = "" if row.contains_in_two is None else f", {row.contains_in_two:.1%} in two"
        table.add_row(row.name, "", f"{row.cites:.1%}", f"{row.verbatim:.1%}", f"{row.contains:.1%}{in_two}")
    table.caption = f"Below the line: {BASELINES_SOURCE}."
    console.print(table)
    table = Table(title=f"Turned away; area under the ROC curve {found.separation:.3f}")
    for heading in ("threshold", "no answer in the documents", "answer in the documents"):
        table.add_column(heading, justify="right")
    for point in found.points:
        if point.threshold in COARSE:
            table.add_row(f"{point.threshold:.2f}", f"{point.unanswerable:.1%}", f"{point.answerable:.1%}")
    table.add_section()
    default = found.default
    table.add_row(f"default {default.threshold:g}", f"{default.unanswerable:.1%}", f"{default.answerable:.1%}")
    console.print(table)
    for bound in kept:
        console.print(
            f"{'holds' if bound.holds else 'FAILS'}: {bound.name} {bound.found:.1%}, at least {bound.least:.0%}"
        )


def as_json(summaries: dict[int, Summary], found: NotFound, kept: Sequence[Bound]) -> dict[str, Any]:
    return {
        "answers": {str(sentences): asdict(summary) for sentences, summary in summaries.items()},
        "not_found": asdict(found),
        "baselines": {"source": BASELINES_SOURCE, "rows": [asdict(row) for row in BASELINES]},
        "bounds": [{**asdict(bound), "holds": bound.holds} for bound in kept],
    }


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--concurrency", type=int, default=8, help="questions asked at once")
    parser.add_argument("--plot", type=Path, help="draw the not-found curve here; needs matplotlib")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(
            f"{arguments.data} is not there: give a file in SQuAD format with --data, or the folder that holds "
            "data/xquad-a.json in EDGE_RAG_SHARED"
        )
    try:
        articles = read_articles(arguments.data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{arguments.data} is not in SQuAD format: {error!r}") from error
    if not articles.questions or len(articles.documents) < 2:
        raise SystemExit(f"{arguments.data}: needs questions with answers, and two articles to take one away from")
    console = Console(stderr=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="edge-rag-") as folder,
            running(Path(folder, "data"), listen=None) as daemon,
            Client(daemon.address, retry=RetryPolicy(max_backoff_s=60)) as client,
        ):
            answers = measure_answers(client, articles, arguments.concurrency, console)
            stored = {name: client.document(name).text for each in articles.documents for name in each}
            without = ask_without(client, articles, arguments.concurrency, console)
    except (DaemonFailed, ClientError) as error:
        raise SystemExit(str(error)) from error
    summaries = {
        sentences: summarize([judge(q, g, stored) for q, g in zip(articles.questions, given, strict=True)])
        for sentences, given in answers.items()
    }
    found = not_found(answers[1], without)
    kept = bounds(summaries, found)
    if arguments.plot:
        plot(found.points, found.default, arguments.plot)
    if arguments.json:
        print(json.dumps(as_json(summaries, found, kept), indent=2))
    else:
        print_tables(summaries, found, kept, articles)
    sys.exit(0 if all(bound.holds for bound in kept) else 1)


if __name__ == "__main__":
    main()
