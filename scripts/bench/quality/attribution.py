"""Measures how well mode cite tells what passages support, on sentences of the passages themselves, altered.

    python -m scripts.bench.quality.attribution [--data FILE] [--json]

For questions of a SQuAD-format file, a sentence of the best passage is taken: as it is, shortened, reworded, with a
number changed, denied, with another name, joined to another sentence, and one of other passages in its place. Printed
is the share of each that has support, and the time that one takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from edge_rag.core.passage import RankedPassage
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.quality.alterations import OTHER, SAME, spliced
from scripts.bench.quality.questions import find_cases, squad

REPOSITORY = Path(__file__).resolve().parents[3]
PASSAGES = 4
SEED = 3
ELSEWHERE, JOINED = "of other passages", "halves of two sentences"


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


def measure(cases: Sequence[Sequence[RankedPassage]]) -> tuple[dict[str, tuple[float, int]], float]:
    """Returns the share with support and the count of each kind, and the mean time of one, seconds."""
    chance = random.Random(SEED)
    everywhere = [text for passages in cases for passage in passages for text in sentences_of(passage)]
    supported: dict[str, list[bool]] = {}
    seconds: list[float] = []
    for passages in cases:
        attributor = Attributor(passages, Stemmer())
        for name, text in written(passages, everywhere, chance):
            began = time.perf_counter()
            supported.setdefault(name, []).append(bool(attributor.support(text)))
            seconds.append(time.perf_counter() - began)
    return {name: (mean(found), len(found)) for name, found in supported.items()}, mean(seconds)


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--questions", type=int, default=200, help="how many of its questions, evenly spread")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    configure_thread_pool(os.cpu_count() or 1)
    encoder = TextEncoder.open(REPOSITORY / "models" / "minilm-l6")
    found = find_cases(encoder, squad(arguments.data, arguments.questions), PASSAGES, Console(stderr=True))
    shares, seconds = measure([case.passages for case in found if len(case.passages) > 1])
    if arguments.json:
        rows = {name: {"supported": share, "sentences": count} for name, (share, count) in shares.items()}
        print(json.dumps({"kinds": rows, "seconds": seconds}, indent=2))
        return
    table = Table(title=f"{seconds * 1000:.2f} ms a sentence")
    for heading in ("sentence", "supported", "sentences"):
        table.add_column(heading, justify="left" if heading == "sentence" else "right")
    for name, (share, count) in shares.items():
        table.add_row(name, f"{share:.1%}", f"{count}")
    Console().print(table)


if __name__ == "__main__":
    main()
