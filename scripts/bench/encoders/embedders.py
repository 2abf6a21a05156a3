"""Embedders side by side: how fast the product takes documents and answers searches with each, and what each costs.

    .venv/bin/python -m scripts.bench.encoders.embedders
    .venv/bin/python -m scripts.bench.encoders.embedders models/minilm-l6 models/multilingual-e5-small --rounds 7 --json

Every round goes through all model folders in turn. With each the product's library takes the same documents into an
empty data directory: it parses them in a process of its own, cuts and embeds them, and commits text, full text and
vectors durably. Then the same questions are searched one by one, reranked as the product does it. Figures are medians
over rounds and questions; shares are of the first folder's. Memory is what a process needs more once it has opened the
model and embedded a text.

With ``--processor-time`` and one thread, other work of the machine counts little; the process that parses is then left
out. With ``--language`` the paragraphs and questions are those of LANG.json in the shared folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
from rich.console import Console
from rich.table import Table

from edge_rag.bootstrap.open_directory import open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.passage import RerankRequest, RetrievalRequest
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import read_squad

ROOT = Path(__file__).parents[3]
FOLDERS = ("minilm-l6", "multilingual-e5-small")
PARAGRAPHS = 12
"""Of a document."""
CANDIDATES = 20
"""Hits that are reranked."""
COLLECTION = "measured"

Clock = Callable[[], float]

_MEMORY = """
import sys
from pathlib import Path
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
def kib():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
configure_thread_pool(1)
before = kib()
encoder = TextEncoder.open(Path(sys.argv[1]))
encoder.embed(["A text."])
print(kib() - before)
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is said of one embedder.

    Attributes:
        model: Name of its folder.
        paragraphs_per_second: Paragraphs of documents that the library takes.
        embedded_per_second: Paragraphs that the encoder alone embeds, in batches.
        search_ms: A question, searched and reranked.
        question_ms: Of it, embedding the question.
        memory_mib: Memory of a process that has opened the model.
        size_mb: Size of the folder.
    """

    model: str
    paragraphs_per_second: float
    embedded_per_second: float
    search_ms: float
    question_ms: float
    memory_mib: float
    size_mb: float


@dataclass(frozen=True, slots=True)
class Texts:
    """What is taken and asked."""

    uploads: tuple[Upload, ...]
    paragraphs: tuple[str, ...]
    questions: tuple[str, ...]


def read_texts(file: Path, documents: int, questions: int) -> Texts:
    """Makes documents of some paragraphs each, all of them different, and draws questions."""
    found, asked = read_squad(file, 1)
    draw = random.Random(7)
    paragraphs = list(found.values())
    uploads = tuple(
        Upload.of_bytes(
            COLLECTION,
            f"{number}.txt",
            "text/plain",
            "\n\n".join([f"Document {number}.", *draw.sample(paragraphs, PARAGRAPHS)]).encode(),
        )
        for number in range(documents)
    )
    some = draw.sample(asked, min(questions, len(asked)))
    return Texts(uploads, tuple(paragraphs[: 4 * PARAGRAPHS]), tuple(question.text for question in some))


def measure_once(encoder: TextEncoder, texts: Texts, clock: Clock) -> tuple[float, float, list[float], list[float]]:
    """Returns the seconds of ingest, of embedding alone, of each search and of each question's embedding."""
    with tempfile.TemporaryDirectory() as folder, closing(open_data_directory(Path(folder), encoder)) as directory:
        directory.library.ingest(Upload.of_bytes("warm-up", "warm-up.txt", "text/plain", b"Starts the parser."))
        began = clock()
        for upload in texts.uploads:
            outcome = directory.library.ingest(upload)
            if outcome.status is not IngestStatus.ADDED:
                sys.exit(f"{upload.name}: {outcome.reason}")
        ingest = clock() - began
        began = clock()
        encoder.embed(texts.paragraphs)
        embed = clock() - began
        reranker = MaxSimReranker(encoder)
        searches, questions = [], []
        for question in texts.questions:
            began = clock()
            (found,) = directory.retriever.retrieve([RetrievalRequest(question, COLLECTION, CANDIDATES)])
            if isinstance(found, Exception):
                raise found
            reranker.rerank([RerankRequest(question, found, CANDIDATES)])
            searches.append(clock() - began)
            began = clock()
            encoder.embed_questions([question])
            questions.append(clock() - began)
    return ingest, embed, searches, questions


def memory_mib(folder: Path) -> float:
    """Returns what a process needs more once it has opened a model."""
    done = subprocess.run([sys.executable, "-c", _MEMORY, str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def compare(folders: Sequence[Path], texts: Texts, rounds: int, clock: Clock) -> list[Figures]:
    """Measures the folders in turns."""
    encoders = [TextEncoder.open(folder) for folder in folders]
    taken = [[measure_once(encoder, texts, clock) for encoder in encoders] for _ in range(rounds)]
    figures = []
    for folder, runs in zip(folders, zip(*taken, strict=True), strict=True):
        ingest, embed, searches, questions = zip(*runs, strict=True)
        figures.append(
            Figures(
                folder.name,
                len(texts.uploads) * PARAGRAPHS / statistics.median(ingest),
                len(texts.paragraphs) / statistics.median(embed),
                1000 * statistics.median(search for run in searches for search in run),
                1000 * statistics.median(question for run in questions for question in run),
                memory_mib(folder),
                sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
            )
        )
    return figures


def table(found: Sequence[Figures]) -> Table:
    """Returns a row a model."""
    made = Table()
    for heading in ("model", "ingest, par./s", "embed, par./s", "search, ms", "question, ms", "MiB", "MB"):
        made.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    first = found[0]
    for each in found:
        cells = [each.model]
        for name, value in asdict(each).items():
            if name == "model":
                continue
            share = value / getattr(first, name)
            if name.endswith("_ms"):
                share = 1 / share
            cells.append(f"{value:.1f}" if each is first or not math.isfinite(share) else f"{value:.1f} ({share:.2f})")
        made.add_row(*cells)
    return made


def main() -> None:
    """Reads the command line."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", ROOT.parent / "shared")) / "data" / "xquad-a"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", default=[ROOT / "models" / name for name in FOLDERS])
    parser.add_argument("--data", type=Path, default=shared, help="folder with a SQuAD-format file a language")
    parser.add_argument("--language", default="en", help="language of the documents and questions")
    parser.add_argument("--documents", type=int, default=20, help="documents of a round")
    parser.add_argument("--questions", type=int, default=20, help="questions of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--processor-time", action="store_true", help="of this process, for a machine that others use")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    configure_thread_pool(arguments.threads)
    texts = read_texts(arguments.data / f"{arguments.language}.json", arguments.documents, arguments.questions)
    busy = os.getloadavg()[0]
    clock = time.process_time if arguments.processor_time else time.perf_counter
    found = compare(arguments.folders, texts, arguments.rounds, clock)
    if arguments.json:
        print(json.dumps({"load_average": busy, "models": [asdict(each) for each in found]}))
        return
    console = Console(width=max(120, Console().width))
    console.print(table(found))
    console.print(f"{arguments.language}, {arguments.threads} threads, load average at the start {busy:.1f}")


if __name__ == "__main__":
    main()
