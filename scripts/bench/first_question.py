"""Time to the first sentence of questions whose passages nobody asked for before: this checkout against another one.

    python -m scripts.bench.first_question --other FOLDER [--rounds 20] [--data FILE] [--json]

Two daemons with default settings hold the same collections, one for each round; each has paragraphs of a file in SQuAD
format. A round is a question to a collection that was never asked: once to this checkout's daemon, once to the other's,
in alternating order, while both are idle else. FOLDER is a checkout in which scripts/test ran once. Printed are the
medians of the time to the first text and to the first whole sentence, of each stage's computation as the daemon tells
it, and of the processor time that a daemon takes for a question; and the median ratio of the pairs, the other's by this
one's. Then the processor time of ingest in both. Exits with 1 if the first sentence is not ``LEAST_RATIO`` times
sooner.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Final

import grpc

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.core.text import sentence_spans
from scripts.bench.harness.checkouts import add_checkout_options, both_running, in_turn, medians, print_rows
from scripts.bench.harness.command import make_parser, require_file
from scripts.bench.harness.daemon import Daemon
from scripts.bench.harness.provenance import caption, provenance
from scripts.bench.harness.squad import Question, read_articles

LEAST_RATIO: Final = 3.0
_WARM_UP: Final = 3
_STAGES: Final = ("retriever", "reranker", "generator")


class Side:
    """A daemon that is measured."""

    def __init__(self, daemon: Daemon, channel: grpc.Channel) -> None:
        self._process = daemon.process
        self._channel = channel
        self.ingest_s = 0.0

    def ingest(self, collection: str, documents: Mapping[str, str]) -> None:
        """Puts documents into a collection."""
        before = self._processor()

        def parts() -> Iterator[documents_pb2.IngestRequest]:
            for name, text in documents.items():
                yield documents_pb2.IngestRequest(
                    header=documents_pb2.IngestRequest.Header(collection=collection, name=name)
                )
                yield documents_pb2.IngestRequest(content=text.encode())

        documents_pb2_grpc.DocumentsStub(self._channel).Ingest(parts(), timeout=600)
        self.ingest_s += self._processor() - before

    def ask(self, collection: str, question: str) -> dict[str, float]:
        """Asks a question; returns its times, ms: from the call, of the daemon's processors and of each stage."""
        request = rag_pb2.AskRequest(question=question, collection=collection)
        texts: list[tuple[float, str]] = []
        stages, before = dict.fromkeys(_STAGES, 0.0), self._processor()
        began = time.perf_counter()
        for event in rag_pb2_grpc.RagStub(self._channel).Ask(request, timeout=120):
            if event.WhichOneof("event") == "text":
                texts.append((time.perf_counter() - began, event.text.text))
            elif event.WhichOneof("event") == "finished":
                stages |= {each.stage: each.compute_seconds for each in event.finished.stages}
        times = {"first text": texts[0][0], "first sentence": first_sentence(texts)}
        times |= {"processor": self._processor() - before, **stages}
        return {name: 1e3 * seconds for name, seconds in times.items()}

    def _processor(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def first_sentence(texts: Sequence[tuple[float, str]]) -> float:
    """Returns when the first sentence of an answer was whole, of its texts and when each came; at least one."""
    end = sentence_spans("".join(text for _, text in texts))[0][1]
    lengths = accumulate(len(text) for _, text in texts)
    return next(when for (when, _), length in zip(texts, lengths, strict=True) if length >= end)


def shares(
    documents: Mapping[str, str], questions: Sequence[Question], rounds: int, size: int
) -> Iterator[tuple[dict[str, str], Question]]:
    names = list(documents)
    for number, first in enumerate(islice(cycle(range(0, len(names) - size + 1, size)), rounds)):
        held = {name: documents[name] for name in names[first : first + size]}
        asked = [question for question in questions if question.document in held]
        yield held, asked[(7 * number) % len(asked)]


def measure(other: Path, data: Path, rounds: int, size: int) -> dict[str, dict[str, float]]:
    """Returns the medians of each side and the ratios, by what was measured."""
    articles = read_articles(data)
    times: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
    with ExitStack() as stack:
        daemons = stack.enter_context(both_running(other))
        sides = {
            name: Side(daemon, stack.enter_context(grpc.insecure_channel(daemon.address)))
            for name, daemon in daemons.items()
        }
        plan = list(shares(articles.texts, articles.questions, rounds + _WARM_UP, size))
        for number, (held, _) in enumerate(plan):
            for side in in_turn(sides, number):
                sides[side].ingest(f"round-{number}", held)
        for number, (_, question) in enumerate(plan):
            for side in in_turn(sides, number):
                taken = sides[side].ask(f"round-{number}", question.text)
                if number >= _WARM_UP:
                    times[side].append(taken)
        ingest = {side: [{"ingest, processor": 1e3 * each.ingest_s}] for side, each in sides.items()}
    return medians(times["this"], times["other"]) | medians(ingest["this"], ingest["other"])


def main() -> int:
    parser = make_parser(__doc__)
    add_checkout_options(parser, rounds=20)
    parser.add_argument("--paragraphs", type=int, default=24, help="documents of a collection")
    options = parser.parse_args()
    require_file(options.data)
    rows = measure(options.other, options.data, options.rounds, options.paragraphs)
    origin = provenance("scripts.bench.first_question")
    if options.json:
        print(json.dumps({"benchmark": "first_question", **origin, "rows": rows}))
    else:
        print(caption(origin))
        print_rows(rows)
    return 0 if rows["first sentence"]["ratio"] >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
