"""Measures retrieval and reranking by language on translations of one SQuAD-format file.

    python -m scripts.bench.retrieval.languages                      # each language within itself
    python -m scripts.bench.retrieval.languages --across             # from English, and over English
    python -m scripts.bench.retrieval.languages --data FOLDER --languages de,zh --limit 100 --json

The files of the folder are parallel: question i is the same in each. Each paragraph is a document; the documents go
through the product's own library into a temporary data directory.

Printed are nDCG@10 and recall@5 of the question's own paragraph by dense search alone, by BM25 alone, in the fusion
that always counts both, in the product's, which counts BM25 where it knows the words, and after the product's reranker.
Before that, on stderr, the share of the questions whose language is recognized, in which the box would answer them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.progress import track

from edge_rag.analysis.languages import language_of
from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.passage import Retrieved
from edge_rag.errors import EdgeRagError
from edge_rag.retriever.fusion import Rankings, fuse
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.collection import CANDIDATES, COLLECTION, Collection, RememberedEncoder, opened
from scripts.bench.harness.command import XQUAD, add_model_options, console, make_parser, print_json, print_table
from scripts.bench.harness.squad import Question, read_languages
from scripts.bench.retrieval.ranking_quality import RankingQuality, document_rank, ranking_quality

DEPTH: Final = 100
BATCH: Final = 32
PIVOT: Final = "en"

Qualities = dict[str, RankingQuality]


def measure(collection: Collection, questions: Sequence[Question], name: str) -> Qualities:
    """Returns the quality of each ranking of the questions' own documents."""
    dense = search(collection, questions, FusionWeights(lexical=0.0), f"{name}: dense")
    bm25 = search(collection, questions, FusionWeights(dense=0.0), f"{name}: BM25")
    product = search(collection, questions, FusionWeights(), f"{name}: fused")
    orders: dict[str, list[list[str]]] = {"dense": [], "BM25": [], "both fused": [], "fused where BM25 knows": []}
    for vectors, words, hits in zip(dense, bm25, product, strict=True):
        both = {hit.passage.chunk_id: hit for hit in (*vectors.hits, *words.hits)}
        by_vectors, by_words = ([hit.passage.chunk_id for hit in each.hits] for each in (vectors, words))
        fused = [both[hit.chunk_id] for hit in fuse([Rankings(by_vectors, by_words)], DEPTH, FusionWeights())]
        for order, ranked in zip(orders.values(), (vectors.hits, words.hits, fused, hits.hits), strict=True):
            order.append([hit.passage.document for hit in ranked])
    reranked = orders.setdefault("reranked", [])
    for question, hits in zip(track(questions, f"{name}: reranked", console=console()), product, strict=True):
        best = collection.rerank(question.text, Retrieved(hits.hits[:CANDIDATES], hits.term_weights))
        reranked.append([ranked.passage.document for ranked in best.passages])
    return {
        ranking: ranking_quality([document_rank(o, q.document) for o, q in zip(rows, questions, strict=True)])
        for ranking, rows in orders.items()
    }


def search(collection: Collection, questions: Sequence[Question], weights: FusionWeights, name: str) -> list[Retrieved]:
    collection.directory.collections.update(COLLECTION, {"fusion": weights})
    batches = [questions[start : start + BATCH] for start in range(0, len(questions), BATCH)]
    return [
        found
        for batch in track(batches, name, console=console())
        for found in collection.retrieve([each.text for each in batch], DEPTH)
    ]


def print_quality(title: str, measured: Mapping[str, Qualities], key: str) -> None:
    rows = []
    for ranking in next(iter(measured.values())):
        values = [asdict(qualities[ranking])[key] for qualities in measured.values()]
        rows.append((ranking, *(f"{value:.3f}" for value in (*values, sum(values) / len(values)))))
    print_table(title, ("", *measured, "mean"), rows)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=XQUAD, help="folder with a file a language")
    parser.add_argument("--languages", help="which languages, apart by commas; without it, all there are")
    parser.add_argument("--across", action="store_true", help="English questions over others, and others over English")
    parser.add_argument("--limit", type=int, help="questions a language, evenly drawn; without it, all")
    add_model_options(parser)
    arguments = parser.parse_args()
    chosen = arguments.languages.split(",") if arguments.languages else None
    wanted = list(dict.fromkeys([*chosen, PIVOT])) if chosen and arguments.across else chosen
    read = read_languages(arguments.data, wanted)
    asked = {language: [language] for language in read}
    if arguments.across:
        others = [language for language in read if language != PIVOT]
        asked = {language: [PIVOT] for language in others} | {PIVOT: others}
    questions: dict[str, Sequence[Question]] = {}
    for language, articles in read.items():
        stride = max(1, len(articles.questions) // arguments.limit) if arguments.limit else 1
        questions[language] = articles.questions[::stride]
        recognized = sum(language_of(question.text) == language for question in questions[language])
        console().print(f"{language}: {recognized / len(questions[language]):.1%} recognized")
    measured: dict[str, Qualities] = {}
    try:
        configure_thread_pool(arguments.threads)
        encoder = RememberedEncoder(TextEncoder.open(arguments.encoder))
        for language, askers in asked.items():
            with opened(encoder, read[language].texts, language) as collection:
                for asker in askers:
                    name = language if asker == language else f"{language}<{asker}"
                    measured[name] = measure(collection, questions[asker], name)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        print_json(measured)
        return
    print_quality("nDCG@10", measured, "ndcg_at_10")
    print_quality("recall@5", measured, "recall_at_5")


if __name__ == "__main__":
    main()
