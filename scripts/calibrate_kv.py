"""Makes a generator's form for CUDA, its INT8 keys and values scaled by what your own documents make them.

    python -m scripts.calibrate_kv --model FOLDER DOCUMENTS
    python -m scripts.calibrate_kv --model FOLDER /var/lib/edge-rag    # the documents of a data directory

DOCUMENTS is a folder of .txt and .md files, or the data directory of an edge-rag, which is only read. The model runs
over them on processor cores, laid out as prompts, and the largest key and value of each layer, head and channel are
noted. The folder gets kv_scales.json, in the form that the onnxruntime-genai builder takes as kv_cache_scale_file, and
cuda.onnx, cuda.onnx.data and cuda.json beside it, and its manifest knows of them. Ctrl-C leaves the folder as it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue
from rich.progress import Progress

from edge_rag.errors import EdgeRagError
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.decoder.cuda.folder import CUDA_FILES, write_cuda_form
from edge_rag.runtime.decoder.cuda.kv_scales import ObservedKv, scales_of
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder, write_manifest
from edge_rag.runtime.session.sessions import configure_thread_pool

SYSTEM = "Answer from the passages only."
DATABASE = "documents.sqlite3"
SUFFIXES = (".md", ".txt")
LONGEST_TEXT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a form was made from.

    Attributes:
        texts: Prompts that were run.
        tokens: Tokens in them.
    """

    texts: int
    tokens: int


def texts_of(documents: Path) -> Iterator[str]:
    """Yields the documents of a folder or a data directory, each as one text."""
    database = documents / DATABASE
    if database.is_file():
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            for (text,) in connection.execute("SELECT text FROM documents ORDER BY document"):
                yield text
        return
    for path in sorted(path for path in documents.rglob("*") if path.suffix in SUFFIXES and path.is_file()):
        yield path.read_text(encoding="utf-8", errors="replace")


def prompts_of(documents: Path, tokenizer: ChatTokenizer, longest: int) -> Iterator[list[int]]:
    """Yields the documents in prompts of at most so many tokens, layout and all."""
    room = longest - len(tokenizer.encode_chat(SYSTEM, ""))
    for text in texts_of(documents):
        words = text.split(" ")
        # A word is seldom more than two tokens; what is too long all the same is cut.
        step = max(1, room // 2)
        for first in range(0, len(words), step):
            yield tokenizer.encode_chat(SYSTEM, " ".join(words[first : first + step]))[:longest]


def calibrate(folder: Path, documents: Path, tokens: int, margin: float, progress: Progress) -> Calibrated:
    """Runs a model over documents and gives its folder a form for CUDA.

    Args:
        folder: The model folder.
        documents: Folder of texts, or data directory.
        tokens: Tokens after which no further text is begun.
        margin: How much larger than the largest that was seen keys and values may be before they are clipped.
        progress: Shows how far it is.

    Raises:
        EdgeRagError: The folder cannot be used, or the model has no form for CUDA.
        ValueError: There is no text.
    """
    manifest = verify_model_folder(folder, ModelRole.GENERATOR)
    geometry = read_geometry(folder)
    longest = min(LONGEST_TEXT_TOKENS, geometry.max_context)
    seen = ObservedKv(PagedDecoder.open(folder, -(-longest // geometry.page_tokens)))
    texts = 0
    task = progress.add_task("tokens", total=tokens)
    for prompt in prompts_of(documents, ChatTokenizer.open(folder), longest):
        seen.observe(np.array(prompt, np.int64))
        texts += 1
        progress.update(task, completed=min(seen.tokens, tokens))
        if seen.tokens >= tokens:
            break
    if texts == 0:
        raise ValueError(f"{documents} has no text: give a folder with .txt or .md files, or a data directory")
    progress.update(task, description="writing", completed=tokens)
    made: dict[str, JsonValue] = {"texts": texts, "tokens": seen.tokens, "margin": margin, "model": manifest.name}
    # Made beside the folder and moved in at once: a folder with files that its manifest does not know is refused.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.resolve().parent) as made_in:
        write_cuda_form(folder, Path(made_in), scales_of(seen.keys, seen.values, margin), made)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for name in CUDA_FILES:
                (Path(made_in) / name).replace(folder / name)
            write_manifest(
                folder,
                name=manifest.name,
                role=manifest.role,
                licence=manifest.licence,
                source=manifest.source,
                made_by=manifest.made_by,
                parameters=manifest.parameters,
            )
        finally:
            signal.signal(signal.SIGINT, before)
    return Calibrated(texts, seen.tokens)


def main() -> int:
    """Returns the exit status: 1 where it cannot be done, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, help="folder of .txt and .md files, or a data directory")
    parser.add_argument("--model", type=Path, required=True, help="model folder of a generator; is added to")
    parser.add_argument("--tokens", type=int, default=100_000, help="most tokens to look at (default: %(default)s)")
    parser.add_argument("--margin", type=float, default=1.1, help="room above the largest seen (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.tokens < 1 or not 1 <= arguments.margin <= 10:
        parser.error("--tokens is at least 1, --margin from 1 to 10")
    configure_thread_pool(arguments.threads)
    try:
        with Progress(transient=True) as progress:
            done = calibrate(arguments.model, arguments.documents, arguments.tokens, arguments.margin, progress)
    except (EdgeRagError, ValueError, OSError, sqlite3.Error) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped; {arguments.model} is as it was", file=sys.stderr)
        return 130
    print(f"{arguments.model}: a form for cuda, scaled by {done.tokens} tokens of {done.texts} texts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
