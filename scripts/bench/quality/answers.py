"""Measures the answers of a daemon with its defaults on a SQuAD-format file, over gRPC.

    python -m scripts.bench.quality.answers [--data FILE] [--json]

Each paragraph becomes a document and all questions are asked, with one sentence and with up to two. Printed: how many
get the not-found answer; of the answers and of all questions, how many cite the paragraph that holds the answer, how
many are the cited text and nothing else, and how many contain a text that the question accepts.

Then the not-found curve: each article's documents are taken out, its questions are asked of all the others, and the
documents are put back. Of these questions and of those that have an answer, the share that a threshold on the evidence
turns away. Ends with status 1 if a bound does not hold.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.progress import track

from edge_rag.client import AskOptions, Client, ClientError, PassagesReceived, RetryPolicy
from edge_rag.core.answer import Citation, Finished, FinishReason, TextDelta
from edge_rag.core.documents.document import IngestStatus
from edge_rag.core.ids import require_recognized
from edge_rag.generator.quote_generator import QuoteSettings
from scripts.bench.harness.command import SQUAD_FILE, console, make_parser, print_json, print_table, require_file
from scripts.bench.harness.daemon import DaemonFailed, running
from scripts.bench.harness.figures import share
from scripts.bench.harness.squad import Articles, Question, read_articles
from scripts.bench.quality.judging import Given, Point, Summary, curve, judge, separation, summarize

SENTENCES: Final = (1, 2)
THRESHOLDS: Final = tuple(step / 20 for step in range(21))
LEAST_TURNED_AWAY: Final = 0.70
"""Share of the unanswerable questions that must be."""

MOST_LOST: Final = 0.05
"""Share of the answerable questions that may be turned away."""

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Bound:
    """What must hold: a share and the least that it may be."""

    name: str
    found: float
    least: float


@dataclass(frozen=True, slots=True)
class NotFound:
    """The not-found curve: the daemon's own threshold, the area under the ROC curve, and other thresholds."""

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


def ask_all(client: Client, questions: Sequence[Question], sentences: int) -> Iterator[Given]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda question: ask(client, question.text, sentences), questions)


def put_in(client: Client, documents: Mapping[str, str]) -> None:
    for name, text in documents.items():
        outcome = client.ingest(name, partial(io.BytesIO, text.encode()), media_type="text/plain")
        if outcome.status is not IngestStatus.ADDED:
            raise SystemExit(f"{name} was not taken: {outcome.reason}")


def ask_without(client: Client, articles: Articles) -> list[Given]:
    answers: list[Given] = []
    for number, documents in enumerate(track(articles.documents, "asking without the article", console=console())):
        for name in documents:
            client.delete(name)
        answers += ask_all(client, [each for each in articles.questions if each.article == number], 1)
        put_in(client, documents)
    return answers


def not_found(answerable: Sequence[Given], unanswerable: Sequence[Given]) -> NotFound:
    with_answer = [given.evidence for given in answerable]
    without = [given.evidence for given in unanswerable]
    lost, away = (share([g.reason is FinishReason.NOT_FOUND for g in each]) for each in (answerable, unanswerable))
    default = Point(QuoteSettings().not_found_below, lost, away)
    return NotFound(default, separation(with_answer, without), curve(with_answer, without, THRESHOLDS))


def bounds(summaries: Mapping[int, Summary], found: NotFound) -> list[Bound]:
    one, two = summaries[1], summaries[2]
    return [
        Bound("answers that cite the right paragraph", one.of_answers.cites, 0.95),
        Bound("the same, up to two sentences", two.of_answers.cites, 0.95),
        Bound("verbatim answers", min(one.of_answers.verbatim, two.of_answers.verbatim), 1.0),
        Bound("answers that contain an accepted text", one.of_answers.contains, 0.80),
        Bound("the same, up to two sentences", two.of_answers.contains, 0.88),
        Bound("unanswerable questions turned away", found.default.unanswerable, LEAST_TURNED_AWAY),
        Bound("answerable questions not turned away", 1 - found.default.answerable, 1 - MOST_LOST),
    ]


def show(summaries: Mapping[int, Summary], found: NotFound) -> None:
    rows: list[tuple[str, ...]] = []
    for sentences, summary in summaries.items():
        name = "one sentence" if sentences == 1 else f"up to {sentences} sentences"
        for of, shares in (("of answers", summary.of_answers), ("of all questions", summary.of_questions)):
            cells = (summary.not_found, shares.cites, shares.verbatim, shares.contains)
            rows.append((f"{name}, {of}", *(f"{cell:.1%}" for cell in cells)))
    headings = ("", "not found", "cites the paragraph", "verbatim", "contains an answer")
    print_table(f"{summaries[1].questions} questions", headings, rows)
    thresholds = ("threshold", "no answer in the documents", "answer in the documents")
    points = [(f"{each.threshold:.2f}", each) for each in found.points]
    points.append((f"default {found.default.threshold:g}", found.default))
    shares_away = [(name, f"{each.unanswerable:.1%}", f"{each.answerable:.1%}") for name, each in points]
    print_table(f"Turned away; area under the ROC curve {found.separation:.3f}", thresholds, shares_away)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=SQUAD_FILE, help="file in SQuAD format")
    arguments = parser.parse_args()
    require_file(arguments.data)
    articles = read_articles(arguments.data)
    answers: dict[int, list[Given]] = {}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="edge-rag-") as folder,
            running(Path(folder, "data"), listen=None) as daemon,
            Client(daemon.address, retry=RetryPolicy(max_backoff_s=60)) as client,
        ):
            put_in(client, articles.texts)
            for sentences in SENTENCES:
                given = ask_all(client, articles.questions, sentences)
                title = f"asking, up to {sentences}"
                answers[sentences] = list(track(given, title, total=len(articles.questions), console=console()))
            stored = {name: client.document(name).text for name in articles.texts}
            without = ask_without(client, articles)
    except (DaemonFailed, ClientError) as error:
        raise SystemExit(str(error)) from error
    summaries = {
        sentences: summarize([judge(q, g, stored) for q, g in zip(articles.questions, given, strict=True)])
        for sentences, given in answers.items()
    }
    found = not_found(answers[1], without)
    kept = bounds(summaries, found)
    if arguments.json:
        print_json({"answers": summaries, "not_found": found, "bounds": kept})
    else:
        show(summaries, found)
    broken = [each for each in kept if each.found < each.least]
    for each in broken:
        print(f"FAILS: {each.name} {each.found:.1%}, at least {each.least:.0%}", file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
