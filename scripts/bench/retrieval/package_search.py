"""Measures known-item search over a Debian archive's package descriptions.

    python -m scripts.bench.retrieval.package_search                   # 60,000 descriptions, 1,000 questions
    python -m scripts.bench.retrieval.package_search --limit 100       # fewer questions
    python -m scripts.bench.retrieval.package_search --cross-encoder FOLDER --json

A package's synopsis is the question and its long description, without the synopsis, the document. The packages are
those of ``apt-cache dumpavail``; where apt's lists lack the long descriptions, ``apt-get -o Acquire::Languages=en
update`` brings them. Of equal descriptions one is kept, and those of fewer than eight words are left out, as nearly all
of them only name a kind of package. The documents go through the product's own library, the first time in a quarter of
an hour or so; the data directory is kept and used again.

Printed for dense search alone, BM25 alone, their fusion, and fusion reranked: recall@1, 5 and 10, nDCG@10 and MRR of
the question's own description. Questions are a random sample of those about one tenth of the source packages
(``reporting``); another tenth (``choosing``) is for choosing settings, and models may be trained on the rest.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from edge_rag.bootstrap.open_directory import RetrieverOptions
from edge_rag.errors import EdgeRagError
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.retrieval.collection import collection_folder, opened_collection, retrieved
from scripts.bench.retrieval.comparison import Comparison
from scripts.bench.retrieval.descriptions import Description, read_descriptions
from scripts.bench.retrieval.known_items import KnownItem, Part, findable, sample_documents, sample_items
from scripts.bench.retrieval.ranking_quality import RankingQuality, ranking_table
from scripts.bench.retrieval.rerankers import open_rerankers

REPOSITORY = Path(__file__).resolve().parents[3]
DEPTH = 100
SEED = 7


def measure(
    documents: dict[str, Description],
    items: list[KnownItem],
    encoder: TextEncoder,
    cross_encoder: PairEncoder | None,
    candidates: int,
    cache: Path,
    console: Console,
) -> dict[str, RankingQuality]:
    """Measures every ranking of the questions."""
    comparison = Comparison(open_rerankers(encoder, cross_encoder), candidates)
    texts = {name: each.text for name, each in documents.items()}
    settings = RetrieverOptions()
    folder = collection_folder(cache, encoder, settings, texts)
    with opened_collection(folder, encoder, settings, texts, console) as directory:
        for item in track(items, "asking", console=console):
            comparison.add(item.question, item.document, retrieved(directory.retriever, item.question, DEPTH))
    return comparison.quality()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=60_000, help="most descriptions")
    parser.add_argument("--limit", type=int, default=1_000, help="most questions")
    parser.add_argument("--part", type=Part, choices=list(Part), default=Part.REPORTING, metavar="PART",
                        help="whose questions: reporting (default), choosing or training")  # fmt: skip
    parser.add_argument("--seed", type=int, default=SEED, help="which documents and questions are drawn")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--cross-encoder", type=Path, help="model folder of a cross-encoder to compare with")
    parser.add_argument("--candidates", type=int, default=20, help="hits handed to the reranker")
    parser.add_argument("--cache", type=Path, default=REPOSITORY / "build" / "known-items", help="where it is kept")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if min(arguments.documents, arguments.limit, arguments.candidates, arguments.threads) < 1:
        parser.error("--documents, --limit, --candidates and --threads are at least 1")
    console = Console(stderr=True)
    with console.status("reading package descriptions"):
        usable = findable(read_descriptions())
        documents = sample_documents(usable, arguments.documents, arguments.seed)
        items = sample_items(documents, arguments.part, arguments.limit, arguments.seed)
    if not items:
        raise SystemExit(f"no question of the part {arguments.part.value} among {len(documents)} descriptions")
    try:
        configure_thread_pool(arguments.threads)
        rankings = measure(
            documents,
            items,
            TextEncoder.open(arguments.encoder),
            None if arguments.cross_encoder is None else PairEncoder.open(arguments.cross_encoder),
            arguments.candidates,
            arguments.cache,
            console,
        )
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        rows = {name: asdict(row) for name, row in rankings.items()}
        print(json.dumps({"documents": len(documents), "questions": len(items), "rankings": rows}))
    else:
        Console().print(ranking_table(f"{len(items)} questions, {len(documents)} descriptions", rankings))


if __name__ == "__main__":
    main()
