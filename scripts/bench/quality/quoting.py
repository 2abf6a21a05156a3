"""Measures how well sentences are chosen for quoted answers, on a SQuAD-format file.

    python -m scripts.bench.quality.quoting [--data FILE] [--passages 4] [--json]

Each paragraph becomes a document of a temporary data directory, each question is retrieved and reranked as the daemon
does it, and one sentence and up to two are quoted. Printed: the share of all questions for which the quoted text holds
an accepted answer and for which it is of the right paragraph, and how many sentences were quoted. Nothing is turned
away as not found, so all rows answer the same questions.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.core.passage import RankedPassage, RerankRequest, Retrieved
from edge_rag.errors import EdgeRagError
from edge_rag.generator.quote_generator import QuoteSettings
from edge_rag.generator.quoting import choose_quotes
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question, read_squad
from scripts.bench.retrieval.passages import retrieve_all
from scripts.bench.retrieval.rerankers import RememberedVectors

REPOSITORY = Path(__file__).resolve().parents[3]
SENTENCES = (1, 2)
CANDIDATES = 20


@dataclass(frozen=True, slots=True)
class Quality:
    """Over all questions.

    Attributes:
        contains: Share whose quoted text holds an accepted answer.
        cites: Share with a quotation of the paragraph that answers.
        quoted: Sentences quoted, mean.
    """

    contains: float
    cites: float
    quoted: float


def rerank_all(
    encoder: TextEncoder, documents: dict[str, str], questions: Sequence[Question], passages: int, console: Console
) -> list[tuple[RankedPassage, ...]]:
    """Returns the passages that each question is answered from."""
    found = retrieve_all(encoder, documents, questions, console)
    reranker = MaxSimReranker(RememberedVectors(encoder))
    ranked = []
    for question, retrieved in zip(track(questions, "reranking", console=console), found, strict=True):
        shortlist = Retrieved(retrieved.hits[:CANDIDATES], retrieved.term_weights)
        ranked += [each.passages for each in reranker.rerank([RerankRequest(question.text, shortlist, passages)])]
    return ranked


def quality(questions: Sequence[Question], ranked: Sequence[tuple[RankedPassage, ...]], sentences: int) -> Quality:
    """Quotes up to so many sentences for each question, and judges them."""
    contains = cites = quoted = 0
    for question, passages in zip(questions, ranked, strict=True):
        quotes = choose_quotes(question.text, passages, sentences, QuoteSettings().margin)
        sources = [passages[quote.passage].passage for quote in quotes]
        texts = [source.text[quote.start : quote.end] for source, quote in zip(sources, quotes, strict=True)]
        contains += any(answer in text for answer in question.answers for text in texts)
        cites += any(source.document == question.document for source in sources)
        quoted += len(quotes)
    return Quality(contains / len(questions), cites / len(questions), quoted / len(questions))


def print_table(found: Mapping[int, Quality], questions: int) -> None:
    table = Table(title=f"{questions} questions")
    for heading in ("sentences", "contains an answer", "cites the paragraph", "quoted"):
        table.add_column(heading, justify="right", overflow="fold")
    for sentences, reached in found.items():
        cells = (f"{reached.contains:.1%}", f"{reached.cites:.1%}", f"{reached.quoted:.2f}")
        table.add_row(f"up to {sentences}", *cells)
    Console().print(table)


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--passages", type=int, default=4, help="passages whose sentences are offered")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    console = Console(stderr=True)
    try:
        configure_thread_pool(arguments.threads)
        documents, questions = read_squad(arguments.data)
        encoder = TextEncoder.open(arguments.encoder)
        ranked = rerank_all(encoder, documents, questions, arguments.passages, console)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise SystemExit(f"{arguments.data} is not in SQuAD format: {error!r}") from error
    found = {sentences: quality(questions, ranked, sentences) for sentences in SENTENCES}
    if arguments.json:
        print(json.dumps({sentences: asdict(reached) for sentences, reached in found.items()}, indent=2))
    else:
        print_table(found, len(questions))


if __name__ == "__main__":
    main()
