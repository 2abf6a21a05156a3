"""How long a box with many documents takes from the start of the daemon to its first answer.

    python -m scripts.bench.load.restart [--passages 100000] [--rounds 7] [--json]
    python -m scripts.bench.load.restart --data FOLDER --other CHECKOUT

The data directory holds the samples, embedded by the default embedder, and documents of drawn words. Those go through
the product's own ingest (parser, chunks, words, SQLite, index), but not through the embedder, which would take an hour:
their vectors are synthetic, one of a thousand random directions and noise, of unit length, and so are their token
vectors, which fill the file to its default budget. --data keeps the directory and uses it again.

A round starts the daemon with default settings, waits for the line that says that it serves, asks one question in mode
quote, and stops it. The first round is not counted. With --other, rounds of the other checkout are in turn with ours.
Seconds are of the wall clock and medians, and processor seconds those of the daemon until it serves; take both on a
machine that does nothing else. Files are in the page cache and the package's byte code is written, as after a restart
of the daemon, not of the machine. (Timers around the parts of a start are in commit ceb89611.)
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from rich.progress import Progress

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.client import Client
from edge_rag.config.settings import load_settings
from edge_rag.core.documents.document import Upload
from edge_rag.index.token_vectors import default_budget
from edge_rag.runtime.encoder.text_encoder import TextEncoder, TokenVectors, pack
from scripts.bench.harness.checkouts import checkout, in_turn
from scripts.bench.harness.command import SAMPLES, console, make_parser, print_json
from scripts.bench.harness.daemon import running
from scripts.bench.harness.processes import wait_until

QUESTION = "How often must the pump bearings be greased?"
_VARIABLES = {"PYTHONDONTWRITEBYTECODE": ""}
_PASSAGES = 250
_INDEX_S = 1800.0
_WORDS = 60_000
_DIRECTIONS = 1000
_TOKENS = 80
_NOISE = 0.5


class DrawnVectors:
    """The embedder's tokens and name, and drawn vectors of unit length instead of its own."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._draw = np.random.default_rng(4)
        self._directions = _unit(self._draw.standard_normal((_DIRECTIONS, encoder.dimension)))
        rows = _unit(self._draw.standard_normal((_TOKENS, encoder.dimension)))
        places = np.arange(_TOKENS, dtype=np.int32)
        self._packed = pack(TokenVectors(rows, np.stack((places, places + 1), axis=1)))
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.max_tokens = encoder.max_tokens

    def count_tokens(self, text: str) -> int:
        return self._encoder.count_tokens(text)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        chosen = self._directions[self._draw.integers(0, _DIRECTIONS, len(texts))]
        noise = self._draw.standard_normal(chosen.shape) * (_NOISE / np.sqrt(self.dimension))
        return _unit(chosen + noise)

    embed_questions = embed

    def embed_passages(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[bytes]]:
        return self.embed(texts), [self._packed] * len(texts)


def _unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def drawn_documents(draw: np.random.Generator) -> Iterator[str]:
    """Yields documents of drawn sentences; words are as frequent as in a language (Zipf)."""
    syllables = [first + second for first in "bcdfghklmnprstvz" for second in "aeiou"]
    words = ["".join(draw.choice(syllables, draw.integers(1, 5))) for _ in range(_WORDS)]
    shares = 1 / np.arange(10, _WORDS + 10)
    shares /= shares.sum()
    while True:
        places = draw.choice(_WORDS, (_PASSAGES, 3, 12), p=shares).tolist()
        yield "\n\n".join(
            " ".join(" ".join(words[place] for place in sentence).capitalize() + "." for sentence in paragraph)
            for paragraph in places
        )


def fill(data: Path, passages: int) -> None:
    """Makes the data directory."""
    models = load_settings(None, {"data_directory": data}).models
    encoder = TextEncoder.open(models.directory / models.embedder)
    options = DirectoryOptions(token_vector_bytes=default_budget(data))
    with closing(OpenDirectory(data, encoder, options, token_embedder=encoder)) as directory:
        for path in sorted(SAMPLES.iterdir()):
            if path.is_file():
                directory.library.ingest(Upload.of_bytes("default", path.name, "", path.read_bytes()))
    drawn = DrawnVectors(encoder)
    with closing(OpenDirectory(data, drawn, options, token_embedder=drawn)) as directory:
        documents = drawn_documents(np.random.default_rng(5))
        with Progress(console=console()) as progress:
            task = progress.add_task("ingesting", total=passages)
            number = 0
            while (stored := directory.library.indexes()[0].vectors or 0) < passages:
                progress.update(task, completed=stored)
                upload = Upload.of_bytes("default", f"{number}.txt", "text/plain", next(documents).encode())
                directory.library.ingest(upload)
                number += 1
        console().print("building the vector index")
        wait_until(lambda: not directory.library.indexes()[0].pending, _INDEX_S, "the vector index")


def start(data: Path, tree: Path | None) -> dict[str, float]:
    """Starts the daemon, asks it, and stops it; returns seconds."""
    began = time.perf_counter()
    with running(data, tree=tree, variables=_VARIABLES) as daemon:
        serving = time.perf_counter() - began
        times = daemon.process.cpu_times()
        with Client(daemon.address, timeout_s=60) as client:
            arrivals = [(time.perf_counter() - began, event) for event in client.ask(QUESTION)]
    kinds = [type(event).__name__ for _, event in arrivals]
    if "NotFound" in kinds:
        sys.exit("the question found nothing")
    return {
        "serving_s": serving,
        "answer_s": arrivals[-1][0],
        "processor_s": times.user + times.system,
    }


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--passages", type=int, default=100_000, help="passages in the data directory")
    parser.add_argument("--data", type=Path, help="keep the data directory here, or use the one that is here")
    parser.add_argument("--rounds", type=int, default=7, help="starts of each side")
    parser.add_argument("--other", type=checkout, help="another checkout")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as folder:
        data = (options.data or Path(folder)) / "data"
        filled = data.with_suffix(".filled")
        if not filled.exists():
            data.parent.mkdir(parents=True, exist_ok=True)
            fill(data, options.passages)
            filled.touch()
        trees: dict[str, Path | None] = {"this": None} | ({"other": options.other} if options.other else {})
        taken: dict[str, list[dict[str, float]]] = {side: [] for side in trees}
        for number in range(-1, options.rounds):
            for side in in_turn(trees, number):
                figures = start(data, trees[side])
                if number >= 0:
                    taken[side].append(figures)
        report = {
            side: {name: median(each[name] for each in several) for name in several[0]}
            for side, several in taken.items()
        }
    if options.json:
        print_json(report)
        return 0
    for side, medians in report.items():
        print(side + "".join(f"  {name} {value:.2f}" for name, value in medians.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
