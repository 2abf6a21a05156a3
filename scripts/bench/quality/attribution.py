"""Measures how well mode cite tells what passages support, on sentences of the passages themselves, altered.

    python -m scripts.bench.quality.attribution [--data FILE] [--half even|odd] [--json]

For questions of a SQuAD-format file, a sentence of the best passage is taken: as it is, shortened, reworded, with a
number changed, denied, with another name, joined to another sentence, and one of other passages in its place. Then the
accepted answer alone, in the few words that the file gives, and in its place the answer to another question that is
also in the passages. Printed is the share of each that has support, judged by itself and as an answer to the question,
as the product does; the share of which the product says that a passage has another number; and the time that one takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from edge_rag.core.passage import RankedPassage
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question
from scripts.bench.quality.alterations import OTHER, SAME, spliced
from scripts.bench.quality.questions import Case, find_cases, squad

REPOSITORY = Path(__file__).resolve().parents[3]
PASSAGES = 4
SEED = 3
ELSEWHERE, JOINED = "of other passages", "halves of two sentences"
SHORT, SHORT_OTHER = "the accepted answer alone", "another question's answer"


def sentences_of(passage: RankedPassage) -> list[str]:
    return [passage.passage.text[each.start : each.end] for each in passage.sentences]


def written(
    passages: Sequence[RankedPassage], everywhere: Sequence[str], chance: random.Random
) -> Iterator[tuple[str, str]]:
    """Yields what might be written about some passages, each with the name of its kind."""
    sentence = chance.choice(sentences_of(passages[0]))
    for name, alter in (*SAME, *OTHER):
        if (altered := alter(sentence, chance)) is not None:
            yield name, altered
    elsewhere = [text for text in everywhere if not any(text in each.passage.text for each in passages)]
    yield ELSEWHERE, chance.choice(elsewhere)
    if (joined := spliced(sentence, chance.choice(sentences_of(passages[-1])))) is not None:
        yield JOINED, joined


def answers(asked: Question, case: Case, questions: Sequence[Question]) -> Iterator[tuple[str, str]]:
    """Yields the accepted answer, and another's that is in the passages, but not in the answering sentence."""
    if case.said is None:
        return
    yield SHORT, asked.answers[0]
    offered = [each.passage.text for each in case.passages]
    for other in questions:
        answer = other.answers[0]
        if other.text != asked.text and answer not in case.said and any(answer in text for text in offered):
            yield SHORT_OTHER, answer
            return


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one kind of sentence.

    Attributes:
        by_itself: Share with support without the question.
        supported: Share with support as an answer to the question.
        conflict: Share of which a passage is said to have another number.
        sentences: How many.
    """

    by_itself: float
    supported: float
    conflict: float
    sentences: int


def measure(cases: Sequence[Case], questions: Sequence[Question]) -> tuple[dict[str, Row], float]:
    """Returns what was found of each kind of sentence, and the mean time, seconds.

    Args:
        cases: With at least two passages each.
        questions: What is asked, in the same order.
    """
    chance = random.Random(SEED)
    everywhere = [text for case in cases for passage in case.passages for text in sentences_of(passage)]
    found: dict[str, list[tuple[bool, bool, bool]]] = {}
    seconds: list[float] = []
    for case, asked in zip(cases, questions, strict=True):
        alone, answering = Attributor(case.passages, Stemmer()), Attributor(case.passages, Stemmer(), case.question)
        for name, text in (*written(case.passages, everywhere, chance), *answers(asked, case, questions)):
            by_itself = bool(alone.support(text))
            began = time.perf_counter()
            finding = answering.find(text)
            seconds.append(time.perf_counter() - began)
            row = by_itself, bool(finding.support), finding.conflict is not None
            found.setdefault(name, []).append(row)
    rows = {
        name: Row(mean(column[0]), mean(column[1]), mean(column[2]), len(all_of))
        for name, all_of in found.items()
        for column in (tuple(zip(*all_of, strict=True)),)
    }
    return rows, mean(seconds)


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--questions", type=int, default=200, help="how many of its questions, evenly spread")
    parser.add_argument(
        "--half", choices=("both", "even", "odd"), default="both", help="articles whose questions count"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    configure_thread_pool(os.cpu_count() or 1)
    encoder = TextEncoder.open(REPOSITORY / "models" / "minilm-l6")
    collection = squad(arguments.data, arguments.questions)
    found = find_cases(encoder, collection, PASSAGES, Console(stderr=True))
    parities = {"both": (0, 1), "even": (0,), "odd": (1,)}[arguments.half]
    kept = [
        (case, asked)
        for case, asked in zip(found, collection.questions, strict=True)
        if len(case.passages) > 1 and asked.article % 2 in parities
    ]
    rows, seconds = measure([case for case, _ in kept], [asked for _, asked in kept])
    if arguments.json:
        print(json.dumps({"kinds": {name: asdict(row) for name, row in rows.items()}, "seconds": seconds}, indent=2))
        return
    table = Table(title=f"{seconds * 1000:.2f} ms a sentence")
    for heading in ("sentence", "by itself", "as an answer", "another number", "sentences"):
        table.add_column(heading, justify="left" if heading == "sentence" else "right")
    for name, row in rows.items():
        shares = (f"{share:.1%}" for share in (row.by_itself, row.supported, row.conflict))
        table.add_row(name, *shares, f"{row.sentences}")
    Console().print(table)


if __name__ == "__main__":
    main()
