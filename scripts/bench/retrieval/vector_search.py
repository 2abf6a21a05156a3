"""A large collection's vector index: memory, latency and recall, and how it is built.

    .venv/bin/python -m scripts.bench.retrieval.vector_search
    .venv/bin/python -m scripts.bench.retrieval.vector_search --vectors 200000 --within 0.01 --json

The vectors go into a database as the product stores them, the product's own builder makes the index of them, and a
process of its own opens that as the daemon does and is asked questions, one at a time. What that process keeps resident
is read from the kernel after it has answered them all: RssAnon is its own memory, RssFile what it has mapped of files
and touched. Recall is against an exact scan of the stored float32 vectors.

Where vectors come from: sentences of the texts on this machine (package descriptions, documentation, docstrings),
embedded by the product's embedder; ``--vectors-file FILE.npy`` takes float rows made elsewhere, and keeps what was
embedded where that file does not exist. Where there are fewer sentences than ``--vectors``, further vectors are made:
each a mixture of two sentences' vectors that are neighbours of each other, turned away from both by a tenth; the report
says how many are of sentences. Questions are sentences' vectors that are not in the collection.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from edge_rag.index.local import LocalIndexes
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.originals import Originals
from edge_rag.storage.statements import encode_vector
from edge_rag.storage.vectors import StoredVectors

ROOT = Path(__file__).parents[3]
EMBEDDER = "bench"
QUESTIONS = 1000
LIMIT = 10
TEXT_FOLDERS = (Path("/usr/share"), Path(sys.prefix) / "lib")
TEXT_ENDINGS = frozenset((".md", ".rst", ".txt", ".py", ".pod", ".html"))
LONGEST_SENTENCE = 240
FEWEST_WORDS = 5
_faiss: Any = faiss
console = Console(stderr=True)


def sentences(wanted: int) -> list[str]:
    """Returns up to so many distinct sentences of the texts on this machine, shuffled."""
    found: dict[str, None] = {}
    for text in texts():
        for sentence in re.split(r"(?<=[.!?:;])\s+|\n\s*\n", text):
            flat = " ".join(sentence.split())[:LONGEST_SENTENCE]
            letters = sum(letter.isalpha() or letter == " " for letter in flat)
            if len(re.findall(r"[A-Za-z]{2,}", flat)) >= FEWEST_WORDS and letters > 0.8 * len(flat):
                found.setdefault(flat)
        if len(found) >= 1.1 * wanted:
            break
    several = list(found)
    order = np.random.default_rng(1).permutation(len(several))[:wanted]
    return [several[place] for place in order.tolist()]


def texts() -> Iterator[str]:
    """Yields texts of this machine: package descriptions first, then files."""
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=False)
    yield from re.findall(r"^Description(?:-en)?: (.*(?:\n .*)*)", listed.stdout, re.MULTILINE)
    for folder in TEXT_FOLDERS:
        for file in sorted(folder.rglob("*")):
            if file.suffix in TEXT_ENDINGS and file.is_file() and not file.is_symlink():
                text = file.read_text(encoding="utf-8", errors="ignore")
                if file.suffix == ".py":
                    text = "\n\n".join(re.findall(r'"""(.*?)"""', text, re.DOTALL))
                yield re.sub(r"<[^>]*>", " ", text) if file.suffix == ".html" else text


def embedded(count: int, file: Path | None) -> NDArray[np.float32]:
    """Returns up to ``count`` vectors of real sentences, float32 [n, dimension]."""
    if file is not None and file.is_file():
        kept: NDArray[np.float32] = np.load(file, mmap_mode="r")[:count].astype(np.float32)
        return kept
    encoder = TextEncoder.open(ROOT / "models" / "minilm-l6")
    found = sentences(count)
    step = 512
    parts = [
        encoder.embed(found[first : first + step])
        for first in track(range(0, len(found), step), description="embedding", console=console)
    ]
    vectors = np.concatenate(parts)
    if file is not None:
        np.save(file, vectors.astype(np.float16))
    return vectors


def densified(vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Returns ``count`` vectors: the given ones and mixtures of neighbours."""
    missing = count - len(vectors)
    if missing <= 0:
        return vectors[:count]
    draw = np.random.default_rng(2)
    firsts = draw.integers(0, len(vectors), missing)
    made = np.empty((missing, vectors.shape[1]), np.float32)
    coarse = _faiss.index_factory(vectors.shape[1], "IVF512,Flat", _faiss.METRIC_INNER_PRODUCT)
    coarse.train(vectors[:20_000])
    coarse.add(vectors)
    coarse.nprobe = 2
    for first in track(range(0, missing, 4096), description="densifying", console=console):
        chosen = vectors[firsts[first : first + 4096]]
        _, near = coarse.search(chosen, 6)
        others = vectors[near[np.arange(len(chosen)), draw.integers(1, 6, len(chosen))]]
        share = draw.uniform(0.2, 0.8, (len(chosen), 1)).astype(np.float32)
        away = draw.standard_normal(chosen.shape, dtype=np.float32) * (0.1 / np.sqrt(vectors.shape[1]))
        mixed = share * chosen + (1 - share) * others + away
        made[first : first + len(chosen)] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    both = np.concatenate((vectors, made))
    return both[draw.permutation(count)]


def fill(path: Path, vectors: NDArray[np.float32]) -> None:
    """Writes a data directory's database with one collection of these vectors."""
    database = Database(path / "documents.sqlite3")
    with database.writing() as connection:
        connection.execute("INSERT INTO embedders (name, dimension) VALUES (?, ?)", (EMBEDDER, vectors.shape[1]))
        connection.execute("INSERT INTO collections (name, generation) VALUES ('bench', 'filled')")
        connection.execute(
            "INSERT INTO documents (id, collection, name, title, media_type, sha256, size_bytes, characters, chunks, "
            "ingested_at, text) VALUES ('d', 1, 'd', '', 'text/plain', '', 0, 0, ?, '2026-01-01T00:00:00+00:00', '')",
            (len(vectors),),
        )
    for first in track(range(0, len(vectors), 20_000), description="storing", console=console):
        with database.writing() as connection:
            connection.executemany(
                "INSERT INTO chunks (document, collection, ordinal, first, past, page, context, text, embedder, "
                "embedding) VALUES (1, 1, ?, 0, 0, NULL, '[]', '', 1, ?)",
                (
                    (first + number, encode_vector(vector))
                    for number, vector in enumerate(vectors[first : first + 20_000])
                ),
            )
    database.close()


def serve(path: Path, questions_file: Path, share: float) -> None:
    """Opens the index as the daemon does, asks it, and prints what it took; run in a process of its own."""
    database = Database(path / "documents.sqlite3")
    files = Spool(path / "spool", 1 << 30), Originals(path / "originals", database, keep=False)
    stored, store = StoredVectors(database, EMBEDDER), DocumentStore(database, *files)
    questions = np.load(questions_file)
    began = time.monotonic()
    indexes = LocalIndexes(path / "vectors", EMBEDDER, questions.shape[1], stored)
    indexes.load(store.collections())
    opened_s = time.monotonic() - began
    ids = stored.of(1, questions.shape[1]).ids()
    within = None if share >= 1 else np.sort(np.random.default_rng(3).choice(ids, int(share * len(ids)), replace=False))
    taken, found = [], []
    for question in questions:
        began = time.perf_counter()
        found.append(indexes.search(1, question[np.newaxis], LIMIT, within)[0])
        taken.append(time.perf_counter() - began)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mib = {name: int(value.split()[0]) / 1024 for name, value in status.items() if name.startswith(("Rss", "VmHWM"))}
    peak = mib.pop("VmHWM")
    np.save(questions_file.with_name("found.npy"), np.array(found, dtype=np.int64))
    print(json.dumps({"opened_s": opened_s, "taken_ms": [1000 * each for each in taken], "mib": mib, "peak_mib": peak}))
    indexes.close()
    database.close()


def recall(
    vectors: NDArray[np.float32], questions: NDArray[np.float32], found: NDArray[np.int64], share: float
) -> float:
    """Share of the exact ten nearest that was found; ids are places from 1."""
    ids = np.arange(1, len(vectors) + 1)
    if share < 1:
        ids = np.sort(np.random.default_rng(3).choice(ids, int(share * len(ids)), replace=False))
        vectors = vectors[ids - 1]
    _, places = _faiss.knn(questions, vectors, LIMIT, metric=_faiss.METRIC_INNER_PRODUCT)
    hits = sum(len(np.intersect1d(row, ids[exact])) for row, exact in zip(found, places, strict=True))
    return hits / found.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000, help="vectors in the collection")
    parser.add_argument("--vectors-file", type=Path, help="float rows to take, or to keep what is embedded in")
    parser.add_argument("--within", type=float, default=1.0, help="share of the collection that a filter allows")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        path, questions_file = arguments.serve
        serve(path, questions_file, arguments.within)
        return
    real = embedded(arguments.vectors + QUESTIONS, arguments.vectors_file)
    questions, real = real[:QUESTIONS], real[QUESTIONS:]
    vectors = densified(real, arguments.vectors)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        path = Path(folder)
        fill(path, vectors)
        np.save(path / "questions.npy", questions)
        command = [
            sys.executable,
            "-m",
            "scripts.bench.retrieval.vector_search",
            "--within",
            str(arguments.within),
            "--serve",
        ]
        command += [str(path), str(path / "questions.npy")]
        building = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
        built = json.loads(building.stdout.splitlines()[-1])
        serving = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
        served = json.loads(serving.stdout.splitlines()[-1])
        measured = recall(vectors, questions, np.load(path / "found.npy"), arguments.within)
        taken = sorted(served["taken_ms"])
        report = {
            "vectors": len(vectors),
            "of_sentences": min(len(real), len(vectors)),
            "dimension": int(vectors.shape[1]),
            "allowed_share": arguments.within,
            "recall_at_10": measured,
            "p50_ms": statistics.median(taken),
            "p95_ms": taken[int(0.95 * len(taken))],
            "rss_mib": sum(served["mib"].values()),
            **{name: round(value, 1) for name, value in served["mib"].items()},
            "open_s": served["opened_s"],
            "build_s": built["opened_s"],
            "build_peak_rss_mib": built["peak_mib"],
            "index_file_mib": sum(file.stat().st_size for file in (path / "vectors").iterdir()) / 2**20,
            "load_average": os.getloadavg()[0],
            "cpus": len(os.sched_getaffinity(0)),
        }
    if arguments.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:<20} {value:,.3f}" if isinstance(value, float) else f"{name:<20} {value:,}")
    if report["load_average"] > report["cpus"] / 2:
        console.print("taken beside other work: the machine was not idle")


if __name__ == "__main__":
    main()
