"""The product's dense search against a bare call of FAISS at the same recall, on the same vectors, in one run.

    .venv/bin/python -m scripts.bench.retrieval.search_latency
    .venv/bin/python -m scripts.bench.retrieval.search_latency --exact 20000 --segment 100000 --json

Two collections: one that is searched exactly, against ``IndexFlatIP``, and one with a segment, against an ``IVF,SQ8``
index that FAISS trains and holds in memory by itself, reading the fewest lists that find as much as the product does.
Each question goes to both, in turn, the order changing with every question; figures are medians over the questions,
each the best of three. Vectors come from where scripts/bench/retrieval/vector_search.py has them from.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edge_rag.index.local import IndexLimits, LocalIndexes
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import Originals
from edge_rag.storage.vectors import StoredVectors
from scripts.bench.retrieval.vector_search import EMBEDDER, densified, embedded, fill

TIMES = 3
QUIET = 0.5
_faiss: Any = faiss
console = Console(stderr=True)

Search = Callable[[NDArray[np.float32]], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One collection; medians over the questions.

    Attributes:
        index: How the product searches it.
        vectors: Vectors in it.
        product_us: Time of the product's search, microseconds.
        faiss_us: Time of the bare call, microseconds.
        ratio: The first over the second.
        product_recall: Share of the exact nearest that the product finds.
        faiss_recall: Share that the bare call finds.
    """

    index: str
    vectors: int
    product_us: float
    faiss_us: float
    ratio: float
    product_recall: float
    faiss_recall: float


def recall(search: Search, questions: NDArray[np.float32], exact: NDArray[np.int64]) -> float:
    hits = sum(
        len(np.intersect1d(search(question), nearest)) for question, nearest in zip(questions, exact, strict=True)
    )
    return hits / exact.size


def time_both(product: Search, bare: Search, questions: NDArray[np.float32]) -> tuple[float, float]:
    """Returns the median times of both, microseconds."""
    taken: dict[Search, list[float]] = {product: [], bare: []}
    for number, question in enumerate(questions):
        for search in (product, bare) if number % 2 else (bare, product):
            best = min(_seconds(search, question) for _ in range(TIMES))
            taken[search].append(1e6 * best)
    return statistics.median(taken[product]), statistics.median(taken[bare])


def compare(folder: Path, vectors: NDArray[np.float32], questions: NDArray[np.float32], limit: int) -> Comparison:
    """Compares on a collection of these vectors; it gets a segment where there are more than are searched exactly."""
    fill(folder, vectors)
    database = Database(folder / "documents.sqlite3")
    indexes = LocalIndexes(
        folder / "vectors", EMBEDDER, vectors.shape[1], StoredVectors(database, EMBEDDER), IndexLimits()
    )
    files = Spool(folder / "spool", 1 << 30), Originals(folder / "originals", database, keep=False)
    (collection,) = DocumentStore(database, *files).collections()
    indexes.load((collection,))
    report = indexes.describe(collection)
    _, places = _faiss.knn(questions, vectors, limit, metric=_faiss.METRIC_INNER_PRODUCT)
    exact = places.astype(np.int64) + 1

    def product(question: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.array(indexes.search(1, question[np.newaxis], limit, None)[0], dtype=np.int64)

    found = recall(product, questions, exact)
    bare = _flat(vectors, limit) if report.recall is None else _lists(vectors, questions, exact, limit, found)
    product_us, faiss_us = time_both(product, bare, questions)
    bare_found = recall(bare, questions, exact)
    indexes.close()
    database.close()
    kind = report.kind.value
    return Comparison(kind, len(vectors), product_us, faiss_us, product_us / faiss_us, found, bare_found)


def _flat(vectors: NDArray[np.float32], limit: int) -> Search:
    index = _faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return lambda question: index.search(question[np.newaxis], limit)[1][0] + 1


def _lists(
    vectors: NDArray[np.float32],
    questions: NDArray[np.float32],
    exact: NDArray[np.int64],
    limit: int,
    wanted: float,
) -> Search:
    lists = 2 * int(len(vectors) ** 0.5)
    index = _faiss.index_factory(vectors.shape[1], f"IVF{lists},SQ8", _faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:: max(1, len(vectors) // (32 * lists))])
    index.add(vectors)

    def search(question: NDArray[np.float32]) -> NDArray[np.int64]:
        places: NDArray[np.int64] = index.search(question[np.newaxis], limit)[1][0] + 1
        return places

    for probes in range(1, lists + 1):
        index.nprobe = probes
        if recall(search, questions, exact) >= wanted:
            break
    return search


def _seconds(search: Search, question: NDArray[np.float32]) -> float:
    began = time.perf_counter()
    search(question)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exact", type=int, default=50_000, help="vectors of the collection that is searched exactly")
    parser.add_argument("--segment", type=int, default=200_000, help="vectors of the one that is not")
    parser.add_argument("--questions", type=int, default=300, help="questions asked")
    parser.add_argument("--limit", type=int, default=100, help="passages asked for; the product asks for 100")
    parser.add_argument("--vectors-file", type=Path, help="float rows to take, or to keep what is embedded in")
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    most = max(arguments.exact, arguments.segment)
    real = embedded(most + arguments.questions, arguments.vectors_file)
    questions, vectors = real[: arguments.questions], densified(real[arguments.questions :], most)
    results = []
    for count in (arguments.exact, arguments.segment):
        with tempfile.TemporaryDirectory() as folder:
            results.append(compare(Path(folder), vectors[:count], questions, arguments.limit))
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    if arguments.json:
        print(json.dumps({"load_per_cpu": busy, "limit": arguments.limit, "results": [asdict(r) for r in results]}))
        return
    table = Table("index", "vectors", "product µs", "FAISS µs", "ratio", "product recall", "FAISS recall")
    for result in results:
        table.add_row(
            result.index,
            f"{result.vectors:,}",
            f"{result.product_us:,.0f}",
            f"{result.faiss_us:,.0f}",
            f"{result.ratio:.2f}",
            f"{result.product_recall:.3f}",
            f"{result.faiss_recall:.3f}",
        )
    Console(width=100).print(table)
    if busy > QUIET:
        console.print(f"taken beside other work ({busy:.1f} runnable a processor)")


if __name__ == "__main__":
    main()
