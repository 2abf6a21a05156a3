"""Measures retrieval and reranking on a SQuAD-format file: each paragraph a document, its questions the queries.

    python -m scripts.bench.retrieval.passages [--data FILE] [--cross-encoder FOLDER] [--json]

The documents go through the product's own library into a temporary data directory. Printed for dense search alone, BM25
alone, their fusion, and fusion reranked: recall@1, 5 and 10, nDCG@10 and MRR of the question's own paragraph. Then how
often the sentence with the most evidence, or one of the best two, holds one of the answers.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from edge_rag.bootstrap.open_directory import RetrieverOptions
from edge_rag.core.passage import RankedPassage, RerankRequest, Retrieved
from edge_rag.errors import EdgeRagError
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question, read_squad
from scripts.bench.retrieval.collection import opened_collection, retrieved
from scripts.bench.retrieval.comparison import Comparison
from scripts.bench.retrieval.ranking_quality import RankingQuality, ranking_table
from scripts.bench.retrieval.rerankers import open_rerankers

REPOSITORY = Path(__file__).resolve().parents[3]
DEPTH = 100
BEST_SENTENCES = 2


@dataclass(frozen=True, slots=True)
class SentenceQuality:
    """Share of questions whose answer is in the sentence with the most evidence, and in one of the best two."""

    best: float
    best_two: float


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
        with opened_collection(Path(scratch), encoder, RetrieverOptions(), documents, console) as directory:
            return [
                retrieved(directory.retriever, question.text, DEPTH)
                for question in track(questions, "retrieving", console=console)
            ]


def measure(
    encoder: TextEncoder,
    cross_encoder: PairEncoder | None,
    documents: dict[str, str],
    questions: Sequence[Question],
    candidates: int,
    passages: int,
    console: Console,
) -> tuple[dict[str, RankingQuality], dict[str, SentenceQuality]]:
    """Measures the rankings, and the sentences that each reranker offers."""
    found = retrieve_all(encoder, documents, questions, console)
    rerankers = open_rerankers(encoder, cross_encoder)
    comparison = Comparison(rerankers, candidates)
    right: dict[str, list[tuple[bool, bool]]] = {name: [] for name in rerankers}
    for question, hits in zip(track(questions, "reranking", console=console), found, strict=True):
        comparison.add(question.text, question.document, hits)
        shortlist = Retrieved(hits.hits[:candidates], hits.term_weights)
        for name, reranker in rerankers.items():
            (offered,) = reranker.rerank([RerankRequest(question.text, shortlist, passages)])
            holds = [
                any(answer in text for answer in question.answers)
                for text in best_sentences(offered.passages, BEST_SENTENCES)
            ]
            right[name].append((holds[0], any(holds)))
    sentences = {
        name: SentenceQuality(*(sum(column) / len(rows) for column in zip(*rows, strict=True)))
        for name, rows in right.items()
    }
    return comparison.quality(), sentences


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--cross-encoder", type=Path, help="model folder of a cross-encoder to compare with")
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
        rankings, sentences = measure(
            TextEncoder.open(arguments.encoder),
            None if arguments.cross_encoder is None else PairEncoder.open(arguments.cross_encoder),
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
        shares = {name: asdict(row) for name, row in sentences.items()}
        print(json.dumps({"rankings": {name: asdict(row) for name, row in rankings.items()}, "sentences": shares}))
        return
    console = Console()
    console.print(ranking_table(f"{len(questions)} questions, {len(documents)} documents", rankings))
    for name, share in sentences.items():
        console.print(
            f"{name}: answer in the sentence with the most evidence: {share.best:.1%}, in one of the best two: "
            f"{share.best_two:.1%}"
        )


if __name__ == "__main__":
    main()
