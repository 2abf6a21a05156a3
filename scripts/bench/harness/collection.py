"""A data directory of the product with a collection to measure on, searched as the daemon does it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.passage import Reranked, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.core.query import Turn
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder, TokenVectors
from scripts.bench.harness.command import console

COLLECTION: Final = "measured"
CANDIDATES: Final = 20
_MOST_TEXTS: Final = 20_000
_MEDIA_TYPES: Final = {".pdf": "application/pdf", ".html": "text/html", ".md": "text/markdown", ".txt": "text/plain"}

Vectors = NDArray[np.float32]


class RememberedEncoder:
    """Encodes each text once, which is allowed: a text's vectors do not depend on its neighbours."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self.name, self.dimension, self.max_tokens = encoder.name, encoder.dimension, encoder.max_tokens
        self._known: dict[str, dict[str, Any]] = {}

    def count_tokens(self, text: str) -> int:
        return self._encoder.count_tokens(text)

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._stacked(self._once("passage", texts, self._encoder.embed))

    def embed_questions(self, questions: Sequence[str]) -> Vectors:
        return self._stacked(self._once("question", questions, self._encoder.embed_questions))

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        return self._once("tokens", texts, self._encoder.token_vectors)

    def passage_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        return self._once("passage tokens", texts, self._encoder.passage_tokens)

    def _once(self, kind: str, texts: Sequence[str], encode: Callable[[list[str]], Any]) -> list[Any]:
        known = self._known.setdefault(kind, {})
        if len(known) > _MOST_TEXTS:
            known.clear()
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            known.update(zip(new, encode(new), strict=True))
        return [known[text] for text in texts]

    def _stacked(self, rows: list[Vectors]) -> Vectors:
        return np.array(rows, np.float32).reshape(len(rows), self.dimension)


class Collection:
    """One collection, opened."""

    def __init__(self, directory: OpenDirectory, encoder: RememberedEncoder) -> None:
        self.directory = directory
        self._reranker = MaxSimReranker(encoder)

    def retrieve(self, questions: Sequence[str], limit: int, turns: tuple[Turn, ...] = ()) -> list[Retrieved]:
        """Searches for several questions at once."""
        requests = [RetrievalRequest(each, COLLECTION, limit, turns=turns) for each in questions]
        found = []
        for answer in self.directory.retriever.retrieve(requests):
            if isinstance(answer, Exception):
                raise answer
            found.append(answer)
        return found

    def rerank(self, question: str, found: Retrieved, limit: int = CANDIDATES) -> Reranked:
        (ranked,) = self._reranker.rerank([RerankRequest(question, found, limit)])
        return ranked

    def ask(self, question: str, passages: int) -> tuple[Retrieved, Reranked]:
        (found,) = self.retrieve([question], CANDIDATES)
        return found, self.rerank(question, found, passages)


@contextmanager
def opened(
    encoder: RememberedEncoder, documents: Mapping[str, str | bytes], name: str, folder: Path | None = None
) -> Iterator[Collection]:
    """Yields a collection of documents, by their names; what ``folder`` holds already is not read again."""
    with ExitStack() as stack:
        scratch = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scratch.mkdir(parents=True, exist_ok=True)
        directory = stack.enter_context(closing(OpenDirectory(scratch, encoder, DirectoryOptions())))
        if directory.documents.document_counts().get(COLLECTION, 0) < len(documents):
            for document, content in track(documents.items(), f"{name}: ingesting", console=console()):
                stored = content if isinstance(content, bytes) else content.encode()
                upload = Upload.of_bytes(COLLECTION, document, _MEDIA_TYPES[Path(document).suffix], stored)
                outcome = directory.library.ingest(upload)
                if outcome.status is IngestStatus.REJECTED:
                    raise SystemExit(f"{document} was not taken: {outcome.reason}")
        yield Collection(directory, encoder)
