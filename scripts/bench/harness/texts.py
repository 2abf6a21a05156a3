"""The texts that encoders are measured on: passages, questions and sentences, apart and mixed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from edge_rag.bootstrap.open_directory import RetrieverOptions
from edge_rag.core.text import sentence_spans
from edge_rag.ingest.chunking import ChunkLimits, chunk_document, index_text
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.runtime.encoder.text_encoder import TextEncoder

ROOT = Path(__file__).parents[3]
MOST_OF_A_KIND = 240


def read_texts(encoder: TextEncoder, data: Path | None) -> dict[str, list[str]]:
    """Returns the texts of each corpus, in an order that does not change.

    ``chunks`` are what the product would embed of the sample documents. Where there is a SQuAD-format file, its
    paragraphs and questions are corpora too. ``mixed`` is all of these and as many single sentences.

    Args:
        encoder: Counts tokens.
        data: SQuAD-format file; by default the one in the shared folder, if it is there.
    """
    corpora = {"chunks": _sample_chunks(encoder)}
    shared = Path(os.environ.get("EDGE_RAG_SHARED", ROOT.parent / "shared"))
    file = data or shared / "data" / "xquad-a.json"
    if data is not None or file.is_file():
        paragraphs = [
            paragraph
            for article in json.loads(file.read_text(encoding="utf-8"))["data"]
            for paragraph in article["paragraphs"]
        ]
        corpora["paragraphs"] = [paragraph["context"] for paragraph in paragraphs]
        corpora["questions"] = [asked["question"] for paragraph in paragraphs for asked in paragraph["qas"]]
    corpora = {name: _some(texts) for name, texts in corpora.items()}
    passages = [text for name, texts in corpora.items() if name != "questions" for text in texts]
    sentences = _some([text[start:end] for text in passages for start, end in sentence_spans(text)])
    corpora["mixed"] = _some([*(text for texts in corpora.values() for text in texts), *sentences], 4 * MOST_OF_A_KIND)
    return corpora


def _some(texts: list[str], most: int = MOST_OF_A_KIND) -> list[str]:
    distinct = list(dict.fromkeys(texts))
    return random.Random(5).sample(distinct, min(most, len(distinct)))


def _sample_chunks(encoder: TextEncoder) -> list[str]:
    settings = RetrieverOptions()
    limits = ChunkLimits(settings.chunk_tokens, settings.context_tokens)
    texts = []
    for file in sorted((ROOT / "deploy" / "samples").iterdir()):
        _, document = read_document(file.name, "", file.read_bytes(), settings.parsing)
        chunks = chunk_document(document, limits, encoder.count_tokens)
        texts += [index_text(chunk.context, chunk.text) for chunk in chunks]
    return texts
