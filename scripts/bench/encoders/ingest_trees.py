"""Passages a second of an ingest job, and searches beside it: this checkout's daemon against another one's.

    python -m scripts.bench.encoders.ingest_trees --other FOLDER [--rounds 5] [--documents 16] [--data FILE] [--json]

Two daemons with default settings take the same documents as jobs, each of ``PARAGRAPHS`` paragraphs of a file in SQuAD
format: in a round one job in this checkout's daemon and one in the other's, in alternating order, while both are idle
else; then one more in each, beside which searches are made one after the other. FOLDER is a checkout in which
scripts/test ran once. Printed are medians of the rounds, and the median ratio of the pairs, the other's by this one's:
the time of a passage, its processor time with that of the parsers, and the median and 95th percentile of a search.
"""

from __future__ import annotations

import io
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from edge_rag.client import Client, OutgoingDocument, SearchOptions
from edge_rag.core.documents.jobs import Job
from scripts.bench.harness.checkouts import both_running, in_turn, make_parser, medians, parse, print_rows
from scripts.bench.harness.daemon import Daemon
from scripts.bench.harness.squad import read_squad

PARAGRAPHS: Final = 12
_ASKED: Final = "asked"
_THINKING_S: Final = 0.25


class Side:
    """A daemon that is measured."""

    def __init__(self, daemon: Daemon, client: Client) -> None:
        self._process = daemon.process
        self._client = client

    def start(self, collection: str, documents: Mapping[str, str]) -> str:
        """Hands documents over; returns their job."""
        outgoing = [
            OutgoingDocument(name, lambda text=text: io.BytesIO(text.encode()))  # type: ignore[misc]
            for name, text in documents.items()
        ]
        events = self._client.start_ingest(outgoing, collection=collection)
        (job,) = (event for event in events if isinstance(event, Job))
        return job.job_id

    def finish(self, job: str) -> None:
        """Waits for the end of a job."""
        for _ in self._client.watch_job(job):
            pass

    def ingest(self, collection: str, documents: Mapping[str, str]) -> dict[str, float]:
        """Ingests documents; returns the time and the processor time of a passage, ms."""
        before, began = self._processor(), time.perf_counter()
        self.finish(self.start(collection, documents))
        took, worked = time.perf_counter() - began, self._processor() - before
        (passages,) = (each.chunks for each in self._client.collections() if each.name == collection)
        return {"passage": 1e3 * took / passages, "passage, processor": 1e3 * worked / passages}

    def search(self, collection: str, documents: Mapping[str, str], questions: Sequence[str]) -> dict[str, float]:
        """Searches while documents are ingested; returns the median and the 95th percentile of a search, ms."""
        job, took, ended = self.start(collection, documents), list[float](), threading.Event()

        def watch() -> None:
            self.finish(job)
            ended.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        for question in questions:
            began = time.perf_counter()
            self._client.search(question, SearchOptions(limit=5, collection=_ASKED))
            took.append(1e3 * (time.perf_counter() - began))
            if ended.wait(_THINKING_S):
                break
        watcher.join()
        return {"search, median": median(took), "search, 95th": sorted(took)[int(0.95 * (len(took) - 1))]}

    def _processor(self) -> float:
        times = [each.cpu_times() for each in (self._process, *self._process.children(recursive=True))]
        return float(sum(each.user + each.system for each in times))


def drawn(paragraphs: Sequence[str], documents: int, seed: int) -> dict[str, str]:
    """Returns documents that differ from those of other seeds."""
    draw = random.Random(seed)
    return {
        f"{number}.txt": "\n\n".join([f"Document {number} of {seed}.", *draw.sample(paragraphs, PARAGRAPHS)])
        for number in range(documents)
    }


def measure(other: Path, data: Path, rounds: int, size: int) -> dict[str, dict[str, float]]:
    """Returns the medians of each side and of the ratios, by what was measured."""
    texts, asked = read_squad(data)
    paragraphs, questions = list(texts.values()), [each.text for each in asked]
    found: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
    with ExitStack() as stack:
        daemons = stack.enter_context(both_running(other))
        sides = {name: Side(daemon, stack.enter_context(Client(daemon.address))) for name, daemon in daemons.items()}
        for side in sides.values():
            side.ingest(_ASKED, drawn(paragraphs, 4, -1))
        for number in range(rounds):
            for name in in_turn(sides, number):
                taken = sides[name].ingest(f"alone-{number}", drawn(paragraphs, size, 2 * number))
                part = questions[100 * number : 100 * number + 100]
                taken |= sides[name].search(f"beside-{number}", drawn(paragraphs, size, 2 * number + 1), part)
                found[name].append(taken)
    return medians(found["this"], found["other"])


def main() -> None:
    """Runs the command."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--documents", type=int, default=16, help="documents of a job")
    options = parse(parser)
    rows = measure(options.other, options.data, options.rounds, options.documents)
    if options.json:
        print(json.dumps(rows))
        return
    print_rows(rows)


if __name__ == "__main__":
    main()
