"""Measures on public test collections how good the fused order and the reranked one are.

    python -m scripts.bench.retrieval.public DATA/cranfield DATA/cisi DATA/xquad/de.json known-items
    python -m scripts.bench.retrieval.public DATA/cisi --prior 0 --prior 1 --prior 2          # which weight is best

Each set is a folder with a test collection in BEIR's or SMART's form, a file in SQuAD format (each paragraph a
document), or ``known-items``, package descriptions of the Debian archive that apt knows. The documents go through the
product's own library into data directories that are kept.

Printed are nDCG@10 by graded judgements of the fused order and of the reranked one, and their difference with its
paired standard error: of the even-numbered questions, which the reranker's weight may be chosen with, and of the
odd-numbered ones, which it is shown with. Exits with 1 if on the odd-numbered ones of a set the reranked order is worse
by more than a standard error.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from edge_rag.core.passage import RerankRequest
from edge_rag.errors import EdgeRagError
from edge_rag.reranker.max_sim import MaxSimReranker, PassageWeights
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.collection import CANDIDATES, RememberedEncoder, opened
from scripts.bench.harness.command import ROOT, add_model_options, console, make_parser, print_json, print_table
from scripts.bench.harness.squad import read_articles
from scripts.bench.retrieval.judged_sets import JudgedQuestion, JudgedSet, read_judged_set
from scripts.bench.retrieval.known_items import known_items
from scripts.bench.retrieval.ranking_quality import PairedDifference, graded_ndcg, paired_difference

KNOWN_ITEMS = "known-items"
HALVES = ("choosing", "reporting")

Compared = dict[str, dict[float, PairedDifference]]
"""By half of the questions and weight of the fused order."""


def read_set(source: str) -> JudgedSet:
    path = Path(source)
    if source == KNOWN_ITEMS:
        return known_items()
    if path.is_dir():
        return read_judged_set(path)
    if not path.is_file():
        raise SystemExit(f"{source} is neither a folder with a test collection, a SQuAD file nor {KNOWN_ITEMS}")
    articles = read_articles(path)
    asked = (JudgedQuestion(each.text, {each.document: 1.0}) for each in articles.questions)
    return JudgedSet(articles.texts, tuple(asked))


def compare(judged: JudgedSet, encoder: RememberedEncoder, priors: Sequence[float], cache: Path, name: str) -> Compared:
    rerankers = {prior: MaxSimReranker(encoder, PassageWeights(fused=prior)) for prior in priors}
    fused: list[float] = []
    reranked: dict[float, list[float]] = {prior: [] for prior in priors}
    digest = hashlib.sha256(encoder.name.encode())
    for document, text in sorted(judged.documents.items()):
        digest.update(f"\0{document}\0{text}".encode())
    with opened(encoder, judged.documents, name, cache / digest.hexdigest()[:16]) as collection:
        for question in track(judged.questions, name, console=console()):
            (found,) = collection.retrieve([question.text], CANDIDATES)
            fused.append(graded_ndcg((hit.passage.document for hit in found.hits), question.gains))
            request = RerankRequest(found.excerpt or question.text, found, CANDIDATES)
            for prior, reranker in rerankers.items():
                (answer,) = reranker.rerank([request])
                order = (ranked.passage.document for ranked in answer.passages)
                reranked[prior].append(graded_ndcg(order, question.gains))
    return {
        half: {prior: paired_difference(fused[start::2], values[start::2]) for prior, values in reranked.items()}
        for start, half in enumerate(HALVES)
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("sets", nargs="+", metavar="SET", help=f"folder, SQuAD file or {KNOWN_ITEMS}")
    parser.add_argument("--prior", type=float, action="append", help="weight of the fused order [the product's]")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "retrieval", help="where sets are kept")
    add_model_options(parser)
    arguments = parser.parse_args()
    priors = arguments.prior or [PassageWeights().fused]
    try:
        configure_thread_pool(arguments.threads)
        encoder = RememberedEncoder(TextEncoder.open(arguments.encoder))
        measured = {each: compare(read_set(each), encoder, priors, arguments.cache, each) for each in arguments.sets}
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        print_json(measured)
    else:
        headings = ("set", "half", "weight", "questions", "fused", "reranked", "difference", "standard error")
        rows = [
            (name, half, f"{prior:g}", str(row.questions), f"{row.first:.4f}", f"{row.second:.4f}",
             f"{row.difference:+.4f}", f"{row.standard_error:.4f}")
            for name, halves in measured.items()
            for half, by_prior in halves.items()
            for prior, row in by_prior.items()
        ]  # fmt: skip
        print_table(f"nDCG@10, {arguments.encoder.name}", headings, rows)
    worse = [
        name
        for name, halves in measured.items()
        if any(row.difference < -row.standard_error for row in halves[HALVES[1]].values())
    ]
    if worse:
        sys.exit(f"reranking costs on {', '.join(worse)}")


if __name__ == "__main__":
    main()
