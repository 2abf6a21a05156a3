"""Measures on sets of several kinds whether the reranked order is at least as good as the fused one.

    python -m scripts.bench.retrieval.reranking DATA/cranfield DATA/cisi DATA/xquad/de.json known-items
    python -m scripts.bench.retrieval.reranking DATA/cisi --prior 0 --prior 1 --prior 2          # which weight is best

Each set is a folder that holds a test collection in BEIR's or SMART's form, a file in SQuAD format (each paragraph a
document), or ``known-items``, package descriptions of the Debian archive that apt knows. No set belongs to the project;
Cranfield and CISI are to be had from many places. The documents go through the product's own library into data
directories that are kept.

Printed are nDCG@10 by graded judgements of the fused order and of the reranked one, and their difference with its
paired standard error: of the even-numbered questions, which the reranker's weight may be chosen with, and of the
odd-numbered ones, which it is shown with. Exits with 1 if on the odd-numbered ones of a set the reranked order is worse
by more than a standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.bootstrap.open_directory import RetrieverOptions
from edge_rag.core.passage import RerankRequest
from edge_rag.errors import EdgeRagError
from edge_rag.reranker.max_sim import MaxSimReranker, PassageWeights
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import read_squad
from scripts.bench.retrieval.collection import collection_folder, opened_collection, retrieved
from scripts.bench.retrieval.descriptions import read_descriptions
from scripts.bench.retrieval.judged_sets import JudgedQuestion, JudgedSet, read_judged_set
from scripts.bench.retrieval.known_items import Part, findable, sample_documents, sample_items
from scripts.bench.retrieval.ranking_quality import PairedDifference, graded_ndcg, paired_difference
from scripts.bench.retrieval.rerankers import RememberedVectors

REPOSITORY: Final = Path(__file__).resolve().parents[3]
KNOWN_ITEMS: Final = "known-items"
KNOWN_DOCUMENTS: Final = 3_000
SEED: Final = 7
CANDIDATES: Final = 20

Compared = dict[str, dict[float, PairedDifference]]


def read_set(source: str) -> JudgedSet:
    """Reads a set that the command line names.

    Raises:
        SystemExit: It is not there or in another form.
    """
    if source == KNOWN_ITEMS:
        described = sample_documents(findable(read_descriptions()), KNOWN_DOCUMENTS, SEED)
        items = [
            item
            for part in (Part.CHOOSING, Part.REPORTING)
            for item in sample_items(described, part, KNOWN_DOCUMENTS, SEED)
        ]
        questions = tuple(JudgedQuestion(item.question, {item.document: 1.0}) for item in items)
        return JudgedSet({name: each.text for name, each in described.items()}, questions)
    path = Path(source)
    if path.is_dir():
        return read_judged_set(path)
    if not path.is_file():
        raise SystemExit(f"{source} is neither a folder with a test collection, a SQuAD file nor {KNOWN_ITEMS}")
    documents, asked = read_squad(path)
    return JudgedSet(documents, tuple(JudgedQuestion(each.text, {each.document: 1.0}) for each in asked))


def compare(
    judged: JudgedSet, encoder: TextEncoder, priors: Sequence[float], cache: Path, console: Console, name: str
) -> Compared:
    """Returns fused against reranked, by the half of the questions and the reranker's weight of the fused order."""
    settings, vectors = RetrieverOptions(), RememberedVectors(encoder)
    rerankers = {prior: MaxSimReranker(vectors, PassageWeights(fused=prior)) for prior in priors}
    fused: list[float] = []
    reranked: dict[float, list[float]] = {prior: [] for prior in priors}
    folder = collection_folder(cache, encoder, settings, judged.documents)
    with opened_collection(folder, encoder, settings, judged.documents, console) as directory:
        for question in track(judged.questions, name, console=console):
            found = retrieved(directory.retriever, question.text, CANDIDATES)
            fused.append(graded_ndcg((hit.passage.document for hit in found.hits), question.gains))
            request = RerankRequest(found.excerpt or question.text, found, CANDIDATES)
            for prior, reranker in rerankers.items():
                (answer,) = reranker.rerank([request])
                order = (ranked.passage.document for ranked in answer.passages)
                reranked[prior].append(graded_ndcg(order, question.gains))
    return {
        half: {prior: paired_difference(fused[start::2], values[start::2]) for prior, values in reranked.items()}
        for half, start in (("choosing", 0), ("reporting", 1))
    }


def comparison_table(title: str, measured: Mapping[str, Compared]) -> Table:
    """A row a set, half and weight."""
    table = Table(title=title)
    for heading in ("set", "half", "weight", "questions", "fused", "reranked", "difference", "standard error"):
        table.add_column(heading, justify="left" if heading in {"set", "half"} else "right")
    for name, halves in measured.items():
        for half, rows in halves.items():
            for prior, row in rows.items():
                values = (row.first, row.second, row.difference, row.standard_error)
                table.add_row(name, half, f"{prior:g}", str(row.questions), *(f"{value:.4f}" for value in values))
    return table


def costs(measured: Mapping[str, Compared]) -> list[str]:
    """Names the sets on whose reporting half reranking loses more than its standard error, with any weight."""
    return [
        name
        for name, halves in measured.items()
        if any(row.difference < -row.standard_error for row in halves["reporting"].values())
    ]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET", help=f"folder, SQuAD file or {KNOWN_ITEMS}")
    parser.add_argument(
        "--prior", type=float, action="append", help="weight of the fused order; without it, the product's"
    )
    parser.add_argument(
        "--encoder", type=Path, default=REPOSITORY / "models" / "multilingual-e5-small", help="model folder"
    )
    parser.add_argument("--cache", type=Path, default=REPOSITORY / "build" / "reranking", help="where sets are kept")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    priors = arguments.prior or [PassageWeights().fused]
    console = Console(stderr=True)
    try:
        configure_thread_pool(arguments.threads)
        encoder = TextEncoder.open(arguments.encoder)
        measured = {
            source: compare(read_set(source), encoder, priors, arguments.cache, console, source)
            for source in arguments.sets
        }
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        print(
            json.dumps(
                {
                    name: {half: {prior: asdict(row) for prior, row in rows.items()} for half, rows in halves.items()}
                    for name, halves in measured.items()
                }
            )
        )
    else:
        Console(width=120).print(comparison_table(f"nDCG@10, {arguments.encoder.name}", measured))
    if worse := costs(measured):
        sys.exit(f"reranking costs on {', '.join(worse)}")


if __name__ == "__main__":
    main()
