"""Measures retrieval and reranking by language on translations of one SQuAD-format file.

    python -m scripts.bench.retrieval.languages                      # each language within itself
    python -m scripts.bench.retrieval.languages --across             # from English, and over English
    python -m scripts.bench.retrieval.languages --data FOLDER --languages de,zh --limit 100 --json

The folder holds LANG.json, half of the articles of each language, or xquad.LANG.json, all of them, of which the
even-numbered ones are read. All files are parallel: question i is the same in each. Each paragraph is a document; the
documents go through the product's own library into a temporary data directory.

Printed are nDCG@10 and recall@5 of the question's own paragraph by dense search alone, by BM25 alone, in the fusion
that always counts both, in the product's, which counts BM25 where it knows the words, and after the product's reranker.
Before that, on stderr, the share of the questions whose language is recognized, in which the box would answer them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.analysis.languages import language_of
from edge_rag.bootstrap.open_directory import OpenDirectory, RetrieverOptions
from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.passage import Hit, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.errors import EdgeRagError
from edge_rag.pipeline.ports import Reranker
from edge_rag.retriever.fusion import Rankings, fuse
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question, read_squad
from scripts.bench.retrieval.collection import COLLECTION, opened_collection
from scripts.bench.retrieval.ranking_quality import RankingQuality, document_rank, ranking_quality
from scripts.bench.retrieval.rerankers import open_rerankers

REPOSITORY: Final = Path(__file__).resolve().parents[3]
DEPTH: Final = 100
BATCH: Final = 32
PIVOT: Final = "en"

Qualities = dict[str, RankingQuality]


def language_files(folder: Path) -> dict[str, tuple[Path, int]]:
    """Returns the file of each language, and of how many articles one is read."""
    whole = {path.name.split(".")[1]: (path, 2) for path in sorted(folder.glob("xquad.*.json"))}
    return whole or {path.stem: (path, 1) for path in sorted(folder.glob("??.json"))}


class Collection:
    """The documents of one language, opened for searches."""

    def __init__(self, directory: OpenDirectory, reranker: Reranker, candidates: int) -> None:
        self._directory = directory
        self._reranker = reranker
        self._candidates = candidates

    def measure(self, questions: Sequence[Question], console: Console, name: str) -> Qualities:
        """Returns the quality of each ranking of the questions' own documents."""
        weights = FusionWeights()
        dense = self._search(questions, FusionWeights(lexical=0.0), console, f"{name}: dense")
        bm25 = self._search(questions, FusionWeights(dense=0.0), console, f"{name}: BM25")
        product = self._search(questions, weights, console, f"{name}: fused")
        orders: dict[str, list[list[str]]] = {"dense": [], "BM25": [], "both fused": [], "fused where BM25 knows": []}
        for vectors, words, hits in zip(dense, bm25, product, strict=True):
            both = {hit.passage.chunk_id: hit for hit in (*vectors.hits, *words.hits)}
            by_vectors, by_words = ([hit.passage.chunk_id for hit in each.hits] for each in (vectors, words))
            fused = [both[hit.chunk_id] for hit in fuse([Rankings(by_vectors, by_words)], DEPTH, weights)]
            for order, ranked in zip(orders.values(), (vectors.hits, words.hits, fused, hits.hits), strict=True):
                order.append(documents_of(ranked))
        reranked = orders.setdefault("reranked", [])
        for question, hits in zip(track(questions, f"{name}: reranked", console=console), product, strict=True):
            shortlist = Retrieved(hits.hits[: self._candidates], hits.term_weights)
            (answer,) = self._reranker.rerank([RerankRequest(question.text, shortlist, self._candidates)])
            reranked.append([ranked.passage.document for ranked in answer.passages])
        return {
            name: ranking_quality(
                [document_rank(order, question.document) for order, question in zip(rows, questions, strict=True)]
            )
            for name, rows in orders.items()
        }

    def _search(
        self, questions: Sequence[Question], weights: FusionWeights, console: Console, name: str
    ) -> list[Retrieved]:
        self._directory.collections.update(COLLECTION, {"fusion": weights})
        found: list[Retrieved] = []
        for start in track(range(0, len(questions), BATCH), name, console=console):
            batch = [RetrievalRequest(each.text, COLLECTION, DEPTH) for each in questions[start : start + BATCH]]
            for answer in self._directory.retriever.retrieve(batch):
                if isinstance(answer, Exception):
                    raise answer
                found.append(answer)
        return found


def documents_of(hits: Sequence[Hit]) -> list[str]:
    return [hit.passage.document for hit in hits]


def measure(
    encoder: TextEncoder,
    data: Mapping[str, tuple[dict[str, str], list[Question]]],
    asked: Mapping[str, Sequence[str]],
    candidates: int,
    console: Console,
) -> dict[str, Qualities]:
    """Returns the quality of each pair of languages, by "documents" or "documents<questions".

    Args:
        encoder: Embeds documents and questions, and reranks.
        data: Documents and questions of each language.
        asked: Languages of the questions that are asked of each language's documents.
        candidates: Hits handed to the reranker.
        console: Where progress is shown.
    """
    (reranker,) = open_rerankers(encoder, None).values()
    measured: dict[str, Qualities] = {}
    for language, askers in asked.items():
        with tempfile.TemporaryDirectory() as scratch:
            documents = data[language][0]
            with opened_collection(Path(scratch), encoder, RetrieverOptions(), documents, console) as directory:
                collection = Collection(directory, reranker, candidates)
                for asker in askers:
                    name = language if asker == language else f"{language}<{asker}"
                    measured[name] = collection.measure(data[asker][1], console, name)
    return measured


def quality_table(title: str, measured: Mapping[str, Qualities], key: str) -> Table:
    """A row a ranking, a column a language, and their mean."""
    table = Table(title=title)
    table.add_column("")
    for name in (*measured, "mean"):
        table.add_column(name, justify="right")
    for ranking in next(iter(measured.values())):
        values = [asdict(qualities[ranking])[key] for qualities in measured.values()]
        table.add_row(ranking, *(f"{value:.3f}" for value in (*values, sum(values) / len(values))))
    return table


def main() -> None:
    """Reads the command line."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a", help="folder with a file a language")
    parser.add_argument("--languages", help="which languages, apart by commas; without it, all there are")
    parser.add_argument("--across", action="store_true", help="English questions over others, and others over English")
    parser.add_argument(
        "--encoder", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small", help="model folder"
    )
    parser.add_argument("--limit", type=int, help="questions a language, evenly drawn; without it, all")
    parser.add_argument("--candidates", type=int, default=20, help="hits handed to the reranker")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()
    files = language_files(arguments.data)
    chosen = arguments.languages.split(",") if arguments.languages else list(files)
    needed = dict.fromkeys([*chosen, PIVOT] if arguments.across else chosen)
    if not chosen or (missing := [language for language in needed if language not in files]):
        raise SystemExit(
            f"{arguments.data} lacks {', '.join(missing) if chosen else 'LANG.json'}: name a folder with LANG.json or "
            "xquad.LANG.json with --data"
        )
    console = Console(stderr=True)
    try:
        configure_thread_pool(arguments.threads)
        data = {}
        for language in needed:
            path, step = files[language]
            documents, questions = read_squad(path, step)
            stride = max(1, len(questions) // arguments.limit) if arguments.limit else 1
            data[language] = documents, questions[::stride]
            recognized = sum(language_of(question.text) == language for question in data[language][1])
            console.print(f"{language}: {recognized / len(data[language][1]):.1%} recognized")
        others = [language for language in chosen if language != PIVOT]
        asked = {language: [language] for language in chosen}
        if arguments.across:
            asked = {language: [PIVOT] for language in others} | {PIVOT: others}
        measured = measure(TextEncoder.open(arguments.encoder), data, asked, arguments.candidates, console)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        print(json.dumps({name: {key: asdict(row) for key, row in rows.items()} for name, rows in measured.items()}))
        return
    wide = Console(width=max(120, 26 + 8 * len(measured)))
    wide.print(quality_table("nDCG@10", measured, "ndcg_at_10"))
    wide.print(quality_table("recall@5", measured, "recall_at_5"))


if __name__ == "__main__":
    main()
