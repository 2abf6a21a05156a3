"""Passages a second: the product's ingest against sentence-transformers and FAISS written directly, on the same texts.

    .venv/bin/python -m scripts.bench.encoders.ingest_throughput
    .venv/bin/python -m scripts.bench.encoders.ingest_throughput --documents 50 --rounds 1 --json

The product takes documents: it parses them in a process of its own, cuts and embeds them, commits text, full text and
vectors durably, one transaction a document, and updates the index. The peer is given the passages that this makes,
already cut, as one list: it embeds them in fp32 and adds them to an ``IndexFlatIP`` which it writes at the end. So the
peer does less. Rounds alternate between the two, each into an empty folder; figures are medians. Needs the ``convert``
extra; the peer's weights come from where scripts/bench/encoders/speed.py has them from.

Documents are made of the paragraphs of the sample documents and, where it is there, of the shared SQuAD-format file.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import faiss
import structlog
import torch
from rich.console import Console
from sentence_transformers import SentenceTransformer

from edge_rag.bootstrap.open_directory import RetrieverOptions, open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.ingest.chunking import ChunkLimits, chunk_document, index_text
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.encoders.speed import installed_checkpoint, random_checkpoint
from scripts.bench.harness.texts import read_texts

ROOT = Path(__file__).parents[3]
PARAGRAPHS = 12
QUIET = 0.5
_faiss: Any = faiss


def documents(encoder: TextEncoder, count: int) -> list[Upload]:
    """Returns plain text documents of some paragraphs each, all of them different."""
    corpora = read_texts(encoder, None)
    paragraphs = corpora.get("paragraphs", []) + corpora["chunks"]
    draw = random.Random(7)
    return [
        Upload.of_bytes(
            "default",
            f"{number}.txt",
            "text/plain",
            "\n\n".join([f"Document {number}.", *draw.sample(paragraphs, PARAGRAPHS)]).encode(),
        )
        for number in range(count)
    ]


def passages(uploads: list[Upload], encoder: TextEncoder) -> list[str]:
    """Returns what the product embeds of the documents."""
    settings = RetrieverOptions()
    limits = ChunkLimits(settings.chunk_tokens, settings.context_tokens)
    found = []
    for upload in uploads:
        _, parsed = read_document(upload.name, upload.media_type, upload.content.read(), settings.parsing)
        chunks = chunk_document(parsed, limits, encoder.count_tokens)
        found += [index_text(chunk.context, chunk.text) for chunk in chunks]
    return found


def ingest(uploads: list[Upload], encoder: TextEncoder, expected: int) -> float:
    """Has the product take the documents; returns the seconds that took."""
    with tempfile.TemporaryDirectory() as folder, closing(open_data_directory(Path(folder), encoder)) as directory:
        directory.library.ingest(
            Upload.of_bytes("warm-up", "warm-up.txt", "text/plain", b"Starts the parser's process.")
        )
        began = time.perf_counter()
        for upload in uploads:
            outcome = directory.library.ingest(upload)
            if outcome.status is not IngestStatus.ADDED:
                sys.exit(f"{upload.name}: {outcome.reason}")
        taken = time.perf_counter() - began
        (index,) = (each for each in directory.library.indexes() if each.collection == "default")
        if index.vectors != expected:
            sys.exit(f"the product made {index.vectors} passages, not {expected}")
    return taken


def ingest_with_peer(texts: list[str], peer: SentenceTransformer) -> float:
    """Embeds and indexes the passages with the peer; returns the seconds that took."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        vectors = peer.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        index = _faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        _faiss.write_index(index, str(Path(folder) / "index.faiss"))
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100, help="documents ingested in a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of both")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of each")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "minilm-l6", help="the product's embedder")
    parser.add_argument("--checkpoint", type=Path, help="sentence-transformers folder of the same model")
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    configure_thread_pool(arguments.threads)
    torch.set_num_threads(arguments.threads)
    encoder = TextEncoder.open(arguments.model)
    uploads = documents(encoder, arguments.documents)
    texts = passages(uploads, encoder)
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = arguments.checkpoint or installed_checkpoint()
        trained = checkpoint is not None
        peer = SentenceTransformer(str(checkpoint or random_checkpoint(arguments.model, encoder, Path(scratch))))
        peer.max_seq_length = encoder.max_tokens
        rounds = [
            (ingest(uploads, encoder, len(texts)), ingest_with_peer(texts, peer)) for _ in range(arguments.rounds)
        ]
    product, other = (statistics.median(side) for side in zip(*rounds, strict=True))
    report = {
        "documents": len(uploads),
        "passages": len(texts),
        "bytes": sum(upload.content.size_bytes for upload in uploads),
        "threads": arguments.threads,
        "peer_weights": "trained" if trained else "random, of the same shape",
        "product_passages_per_second": len(texts) / product,
        "peer_passages_per_second": len(texts) / other,
        "ratio": other / product,
        "load_average": busy,
    }
    if arguments.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name:<28} {value:,.2f}" if isinstance(value, float) else f"{name:<28} {value}")
    if busy > QUIET:
        Console(stderr=True).print(f"load average {busy:.1f}: others use this machine, and figures mean little")


if __name__ == "__main__":
    main()
