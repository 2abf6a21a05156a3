"""Time to the first sentence of questions whose passages nobody asked for before: this checkout against another one.

    python -m scripts.bench.retrieval.first_question --other FOLDER [--rounds 20] [--data FILE] [--json]

Two daemons with default settings hold the same collections, one for each round; each has paragraphs of a file in SQuAD
format. A round is a question to a collection that was never asked: once to this checkout's daemon, once to the other's,
in alternating order, while both are idle else. FOLDER is a checkout in which scripts/test ran once. Printed are the
medians of the time to the first text and to the first whole sentence, of each stage's computation as the daemon tells
it, and of the processor time that a daemon takes for a question; and the median ratio of the pairs, the other's by this
one's. Then the processor time of ingest in both. Exits with 1 if the first sentence is not ``LEAST_RATIO`` times
sooner.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate, cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

import grpc

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.core.text import sentence_spans
from scripts.bench.harness.daemon import Daemon, running
from scripts.bench.harness.provenance import caption, provenance
from scripts.bench.harness.squad import Question, read_squad

REPOSITORY: Final = Path(__file__).resolve().parents[3]
LEAST_RATIO: Final = 3.0
_WARM_UP: Final = 3
_STAGES: Final = ("retriever", "reranker", "generator")


@dataclass(frozen=True, slots=True)
class Timed:
    """A question's times, seconds.

    Attributes:
        first_text: From the call to the first text.
        first_sentence: From the call to the text that ends the first sentence.
        processor: Processor time of the daemon.
        stages: Computation by stage.
    """

    first_text: float
    first_sentence: float
    processor: float
    stages: Mapping[str, float]

    def by_name(self) -> dict[str, float]:
        """Returns the times by the names under which they are printed."""
        times = {"first text": self.first_text, "first sentence": self.first_sentence}
        return {**times, "processor": self.processor, **self.stages}


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

    def ask(self, collection: str, question: str) -> Timed:
        """Asks a question."""
        request = rag_pb2.AskRequest(question=question, collection=collection)
        texts: list[tuple[float, str]] = []
        stages, before = dict.fromkeys(_STAGES, 0.0), self._processor()
        began = time.perf_counter()
        for event in rag_pb2_grpc.RagStub(self._channel).Ask(request, timeout=120):
            if event.WhichOneof("event") == "text":
                texts.append((time.perf_counter() - began, event.text.text))
            elif event.WhichOneof("event") == "finished":
                stages |= {each.stage: each.compute_seconds for each in event.finished.stages}
        return Timed(texts[0][0], first_sentence(texts), self._processor() - before, stages)

    def _processor(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def first_sentence(texts: Sequence[tuple[float, str]]) -> float:
    """Returns when the first sentence of an answer was whole, of its texts and when each came; at least one."""
    end = sentence_spans("".join(text for _, text in texts))[0][1]
    lengths = accumulate(len(text) for _, text in texts)
    return next(when for (when, _), length in zip(texts, lengths, strict=True) if length >= end)


@contextmanager
def sides(other: Path) -> Iterator[dict[str, Side]]:
    """Yields both daemons."""
    with ExitStack() as stack:
        found = {}
        for name, tree in (("this", None), ("other", other)):
            data = Path(stack.enter_context(tempfile.TemporaryDirectory()), "data")
            daemon = stack.enter_context(running(data, tree=tree))
            found[name] = Side(daemon, stack.enter_context(grpc.insecure_channel(daemon.address)))
        yield found


def shares(
    documents: Mapping[str, str], questions: list[Question], rounds: int, size: int
) -> Iterator[tuple[dict[str, str], Question]]:
    """Yields the documents of each round, and a question about one of them."""
    names = list(documents)
    for number, first in enumerate(islice(cycle(range(0, len(names) - size + 1, size)), rounds)):
        held = {name: documents[name] for name in names[first : first + size]}
        asked = [question for question in questions if question.document in held]
        yield held, asked[(7 * number) % len(asked)]


def measure(other: Path, data: Path, rounds: int, size: int) -> dict[str, dict[str, float]]:
    """Returns the medians of each side and the ratios, by what was measured."""
    documents, questions = read_squad(data)
    times: dict[str, list[Timed]] = {"this": [], "other": []}
    with sides(other) as found:
        plan = list(shares(documents, questions, rounds + _WARM_UP, size))
        for number, (held, _) in enumerate(plan):
            for side in sorted(found, reverse=number % 2 == 0):
                found[side].ingest(f"round-{number}", held)
        for number, (_, question) in enumerate(plan):
            for side in sorted(found, reverse=number % 2 == 0):
                taken = found[side].ask(f"round-{number}", question.text)
                if number >= _WARM_UP:
                    times[side].append(taken)
        ingest = {side: each.ingest_s for side, each in found.items()}
    rows = {}
    for name in times["this"][0].by_name():
        this, before = ([each.by_name()[name] for each in times[side]] for side in ("this", "other"))
        ratios = [old / new for new, old in zip(this, before, strict=True) if new]
        rows[name] = {
            "this_ms": 1e3 * median(this),
            "other_ms": 1e3 * median(before),
            "ratio": median(ratios) if ratios else 0.0,
        }
    rows["ingest, processor"] = {
        "this_ms": 1e3 * ingest["this"],
        "other_ms": 1e3 * ingest["other"],
        "ratio": ingest["other"] / ingest["this"],
    }
    return rows


def main() -> int:
    """Runs the command."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--rounds", type=int, default=20, help="questions to each side")
    parser.add_argument("--paragraphs", type=int, default=24, help="documents of a collection")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (options.other / ".venv" / "bin" / "python").exists():
        parser.error(f"{options.other} has no .venv; run scripts/test there once")
    if not options.data.is_file():
        parser.error(f"{options.data} is not there: name a file in SQuAD format with --data")
    rows = measure(options.other.resolve(), options.data, options.rounds, options.paragraphs)
    origin = provenance("scripts.bench.retrieval.first_question")
    if options.json:
        print(json.dumps({"benchmark": "first_question", **origin, "rows": rows}))
    else:
        print(caption(origin))
        for name, row in rows.items():
            print(f"{name:20s} {row['this_ms']:9.1f} ms  {row['other_ms']:9.1f} ms  x{row['ratio']:.2f}")
    return 0 if rows["first sentence"]["ratio"] >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
