"""Questions with the passages the product finds for them and the sentence that answers them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from edge_rag.bootstrap.open_directory import OpenDirectory, open_data_directory
from edge_rag.core.documents.document import IngestStatus, Upload
from edge_rag.core.passage import RankedPassage, Reranked, RerankRequest, RetrievalRequest
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from scripts.bench.harness.squad import Question, read_squad

CANDIDATES = 20
COLLECTION = "measured"
SAMPLE_QUESTIONS = Path(__file__).with_name("sample_questions.json")


@dataclass(frozen=True, slots=True)
class Case:
    """A question as the generator gets it.

    Attributes:
        question: The question.
        passages: What is offered, best first.
        evidence: How much speaks for an answer being among them.
        said: The answering sentence; None where no passage holds it.
        passage: 1-based number of its passage; 0 where there is none.
    """

    question: str
    passages: tuple[RankedPassage, ...]
    evidence: float
    said: str | None
    passage: int


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents and what is asked of them; the content of each document by its name."""

    name: str
    documents: Mapping[str, bytes]
    questions: Sequence[Question]


def samples(folder: Path) -> Collection:
    """Returns the sample documents with the questions kept beside this file."""
    documents = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    asked = json.loads(SAMPLE_QUESTIONS.read_text(encoding="utf-8"))
    return Collection(
        "samples", documents, [Question(item["question"], item["document"], (item["answer"],)) for item in asked]
    )


def squad(path: Path, count: int) -> Collection:
    """Returns the paragraphs of a SQuAD-format file and so many of its questions, evenly spread."""
    documents, questions = read_squad(path)
    taken = min(count, len(questions))
    spread = [questions[index * len(questions) // taken] for index in range(taken)]
    return Collection(path.stem, {name: text.encode() for name, text in documents.items()}, spread)


def find_cases(encoder: TextEncoder, collection: Collection, passages: int, console: Console) -> list[Case]:
    """Ingests the documents and takes every question through retrieval and reranking.

    Raises:
        SystemExit: A document was not taken.
        EdgeRagError: A stage failed.
    """
    reranker = MaxSimReranker(encoder)
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = open_data_directory(Path(scratch) / "data", encoder)
        try:
            _ingest(directory, collection, console)
            for question in track(collection.questions, f"{collection.name}: finding passages", console=console):
                (found,) = directory.retriever.retrieve([RetrievalRequest(question.text, COLLECTION, CANDIDATES)])
                if isinstance(found, Exception):
                    raise found
                (ranked,) = reranker.rerank([RerankRequest(question.text, found, passages)])
                cases.append(_case(question, ranked))
        finally:
            directory.close()
    return cases


def _ingest(directory: OpenDirectory, collection: Collection, console: Console) -> None:
    kinds = {".pdf": "application/pdf", ".html": "text/html", ".md": "text/markdown", ".txt": "text/plain"}
    for name, content in track(collection.documents.items(), f"{collection.name}: ingesting", console=console):
        outcome = directory.library.ingest(Upload.of_bytes(COLLECTION, name, kinds[Path(name).suffix], content))
        if outcome.status is not IngestStatus.ADDED:
            raise SystemExit(f"{name} was not taken: {outcome}")


def _case(question: Question, ranked: Reranked) -> Case:
    """Takes as the answer the sentence with most evidence that holds one, in the document that is known to."""
    holding = [
        (sentence.evidence, text, number)
        for number, offered in enumerate(ranked.passages, 1)
        for sentence in offered.sentences
        if offered.passage.document == question.document
        and any(answer in (text := offered.passage.text[sentence.start : sentence.end]) for answer in question.answers)
    ]
    if not holding:
        return Case(question.text, ranked.passages, ranked.evidence, None, 0)
    _, text, number = max(holding)
    return Case(question.text, ranked.passages, ranked.evidence, text, number)
