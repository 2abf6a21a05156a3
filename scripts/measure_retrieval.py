"""Measures retrieval and reranking on a SQuAD-format file: each paragraph a document, its questions the queries.

    python scripts/measure_retrieval.py [--data FILE] [--json]

The documents go through the product's own library into a temporary data directory. Printed for dense search alone, BM25
alone, their fusion, and fusion reranked: recall@1, 5 and 10, nDCG@10 and MRR of the question's own paragraph. Then how
often the sentence with the most evidence, or one of the best two, holds one of the answers.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.core.document import IngestStatus, Upload
from edge_rag.core.passage import Hit, RankedPassage, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.errors import EdgeRagError
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.retriever.opening import open_data_directory
from edge_rag.runtime.sessions import configure_thread_pool
from edge_rag.runtime.text_encoder import TextEncoder
from edge_rag.runtime.token_vectors import TokenVectors

REPOSITORY = Path(__file__).resolve().parents[1]
COLLECTION = "measured"
DEPTH = 100


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the document that answers it, and the answers it accepts."""

    text: str
    document: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """Means over all questions, 0 to 1."""

    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    ndcg_at_10: float
    mrr: float


@dataclass(frozen=True, slots=True)
class SentenceQuality:
    """Share of questions whose answer is in the sentence with the most evidence, and in one of the best two."""

    best: float
    best_two: float


class RememberedVectors:
    """Encodes each text once for all questions; allowed, as a text's vectors do not depend on its neighbours."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, TokenVectors] = {}

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._encoder.token_vectors(new), strict=True))
        return [self._known[text] for text in texts]


def read_squad(path: Path) -> tuple[dict[str, str], list[Question]]:
    """Returns the paragraphs by document name, and the questions."""
    documents: dict[str, str] = {}
    questions: list[Question] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            name = f"paragraph-{len(documents):04d}.txt"
            documents[name] = paragraph["context"]
            questions.extend(
                Question(asked["question"], name, tuple(answer["text"] for answer in asked["answers"]))
                for asked in paragraph["qas"]
            )
    return documents, questions


def document_rank(ranking: Iterable[str], document: str) -> int | None:
    """1-based rank of a document in a ranking of its chunks, each document counted once."""
    order = list(dict.fromkeys(ranking))
    return order.index(document) + 1 if document in order else None


def ranking_quality(ranks: Sequence[int | None]) -> RankingQuality:
    def mean(value: Callable[[int], float]) -> float:
        return sum(value(rank) for rank in ranks if rank is not None) / len(ranks)

    return RankingQuality(
        recall_at_1=mean(lambda rank: rank <= 1),
        recall_at_5=mean(lambda rank: rank <= 5),
        recall_at_10=mean(lambda rank: rank <= 10),
        ndcg_at_10=mean(lambda rank: 1 / log2(1 + rank) if rank <= 10 else 0.0),
        mrr=mean(lambda rank: 1 / rank),
    )


def by_rank(hits: Sequence[Hit], rank_of: Callable[[Hit], int | None]) -> list[str]:
    """Documents of the hits one of the two searches found, in that search's order."""
    ranked = [(rank, hit.passage.document) for hit in hits if (rank := rank_of(hit)) is not None]
    return [document for _, document in sorted(ranked)]


def best_sentences(passages: Sequence[RankedPassage], count: int) -> list[str]:
    sentences = [
        (sentence.evidence, ranked.passage.text[sentence.start : sentence.end])
        for ranked in passages
        for sentence in ranked.sentences
    ]
    return [text for _, text in sorted(sentences, key=lambda pair: -pair[0])[:count]]


def retrieve_all(
    encoder: TextEncoder, documents: dict[str, str], questions: Sequence[Question], console: Console
) -> list[Retrieved]:
    """Ingests the documents into a data directory of its own and asks it every question."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = open_data_directory(Path(scratch) / "data", encoder)
        try:
            for name, text in track(documents.items(), "ingesting", console=console):
                outcome = directory.library.ingest(Upload(COLLECTION, name, "text/plain", text.encode()))
                if outcome.status is not IngestStatus.ADDED:
                    raise SystemExit(f"{name} was not taken: {outcome}")
            found: list[Retrieved] = []
            for question in track(questions, "retrieving", console=console):
                (answer,) = directory.retriever.retrieve([RetrievalRequest(question.text, COLLECTION, DEPTH)])
                if isinstance(answer, Exception):
                    raise answer
                found.append(answer)
            return found
        finally:
            directory.close()


def measure(
    encoder: TextEncoder,
    documents: dict[str, str],
    questions: Sequence[Question],
    candidates: int,
    passages: int,
    console: Console,
) -> tuple[dict[str, RankingQuality], SentenceQuality]:
    """Measures the four rankings and the sentences."""
    found = retrieve_all(encoder, documents, questions, console)
    reranker = MaxSimReranker(RememberedVectors(encoder))
    ranks: dict[str, list[int | None]] = {"dense": [], "BM25": [], "fused": [], "fused and reranked": []}
    in_best: list[bool] = []
    in_two: list[bool] = []
    for question, retrieved in zip(track(questions, "reranking", console=console), found, strict=True):
        shortlist = Retrieved(retrieved.hits[:candidates], retrieved.term_weights)
        ordered, offered = reranker.rerank(
            [RerankRequest(question.text, shortlist, candidates), RerankRequest(question.text, shortlist, passages)]
        )
        rankings = {
            "dense": by_rank(retrieved.hits, lambda hit: hit.dense_rank),
            "BM25": by_rank(retrieved.hits, lambda hit: hit.lexical_rank),
            "fused": [hit.passage.document for hit in retrieved.hits],
            "fused and reranked": [ranked.passage.document for ranked in ordered.passages],
        }
        for name, ranking in rankings.items():
            ranks[name].append(document_rank(ranking, question.document))
        best = best_sentences(offered.passages, 2)
        in_best.append(any(answer in text for text in best[:1] for answer in question.answers))
        in_two.append(any(answer in text for text in best for answer in question.answers))
    quality = {name: ranking_quality(values) for name, values in ranks.items()}
    return quality, SentenceQuality(sum(in_best) / len(in_best), sum(in_two) / len(in_two))


def print_tables(
    quality: dict[str, RankingQuality], sentences: SentenceQuality, documents: int, questions: int
) -> None:
    console = Console()
    table = Table(title=f"{questions} questions, {documents} documents")
    for heading in ("", "recall@1", "recall@5", "recall@10", "nDCG@10", "MRR"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in quality.items():
        table.add_row(name, *(f"{value:.4f}" for value in asdict(row).values()))
    console.print(table)
    console.print(
        f"answer in the sentence with the most evidence: {sentences.best:.1%}, in one of the best two: "
        f"{sentences.best_two:.1%}"
    )


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--candidates", type=int, default=20, help="hits handed to the reranker")
    parser.add_argument("--passages", type=int, default=4, help="passages whose sentences are offered")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(
            f"{arguments.data} is not there: give a file in SQuAD format with --data, or the folder that holds "
            "data/xquad-a.json in EDGE_RAG_SHARED"
        )
    try:
        configure_thread_pool(arguments.threads)
        documents, questions = read_squad(arguments.data)
        quality, sentences = measure(
            TextEncoder.open(arguments.encoder),
            documents,
            questions,
            arguments.candidates,
            arguments.passages,
            Console(stderr=True),
        )
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise SystemExit(f"{arguments.data} is not in SQuAD format: {error!r}") from error
    if arguments.json:
        rankings = {name: asdict(row) for name, row in quality.items()}
        print(json.dumps({"rankings": rankings, "sentences": asdict(sentences)}, indent=2))
    else:
        print_tables(quality, sentences, len(documents), len(questions))


if __name__ == "__main__":
    main()
