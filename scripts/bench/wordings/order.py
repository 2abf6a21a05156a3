"""Measures how passages are ordered by a question's wordings where the main one is right, and where it is wrong.

    python -m scripts.bench.wordings.order --data DATA/xquad-a.json
    python -m scripts.bench.wordings.order --others 0.25 --others 0.5 --places 2 --places 3

Each question of a file in SQuAD format is asked in four ways: with half of the weight of its words replaced by "it" and
the whole question as the main wording; with an edit in each longer word, likewise; as it is, with the heaviest words of
another question appended in the main wording; and as it is, with another question as the main wording. The last two
are wrong readings of a conversation. Printed are the shares of questions whose paragraph is first and among the first
five after reranking, of the even-numbered questions, which the weights may be chosen with, and of the odd-numbered
ones, which they are shown with: by the main wording alone, by both, and with places kept for the question as asked.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import string
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final
from unittest.mock import patch

from rich.console import Console
from rich.progress import track
from rich.table import Table

from edge_rag.bootstrap.open_directory import OpenDirectory, RetrieverOptions
from edge_rag.core.passage import RerankRequest, Retrieved
from edge_rag.core.query import Wordings
from edge_rag.errors import EdgeRagError
from edge_rag.reranker.max_sim import MaxSimReranker, PassageWeights
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.squad import Question, read_squad
from scripts.bench.retrieval.collection import opened_collection, retrieved
from scripts.bench.retrieval.rerankers import RememberedVectors

REPOSITORY: Final = Path(__file__).resolve().parents[3]
CANDIDATES: Final = 20
FIRST: Final = 5
SEED: Final = 7
CARRIED: Final = 6
NO_PLACES: Final = 1_000_000

Way = tuple[str, str]
"""A question as it is asked, and its main wording."""


def ways(question: Retrieved, other: Retrieved, chance: random.Random) -> dict[str, Way]:
    """Returns the ways in which a question is asked, by name; both questions as they were retrieved."""
    text = question.excerpt
    carried = " ".join(heaviest(other, CARRIED))
    return {
        "it for its words": (pronouns(question), text),
        "typos": (re.sub(r"[A-Za-z]{4,}", lambda word: edited(word[0], chance), text), text),
        "words of another": (text, f"{text} {carried}"),
        "another question": (text, other.excerpt),
    }


def heaviest(question: Retrieved, most: int) -> list[str]:
    """Returns the words of a question with the largest weights, the heaviest first."""
    weights = question.term_weights
    return sorted(weights, key=weights.__getitem__, reverse=True)[:most]


def pronouns(question: Retrieved) -> str:
    """Replaces the heavier half of a question's words by "it"."""
    heavy = set(heaviest(question, max(1, len(question.term_weights) // 2)))
    return re.sub(r"\w+", lambda word: "it" if word[0].lower() in heavy else word[0], question.excerpt)


def edited(word: str, chance: random.Random) -> str:
    """Leaves out, adds or exchanges a letter after the first."""
    place, letter = chance.randrange(1, len(word)), chance.choice(string.ascii_lowercase)
    return word[:place] + chance.choice(("", letter, letter + word[place])) + word[place + 1 :]


def shortlist(directory: OpenDirectory, asked: str, main: str) -> Retrieved:
    """Returns the candidates of a question with a given main wording."""
    given = Wordings(asked, standalone=None if main == asked else main)
    with patch("edge_rag.retriever.hybrid.compose", lambda *_, **__: given):
        return retrieved(directory.retriever, asked, CANDIDATES)


def place(reranker: MaxSimReranker, found: Retrieved, question: Question) -> int | None:
    """Returns the 1-based place of a question's paragraph; None if it is not among the candidates."""
    (ranked,) = reranker.rerank([RerankRequest(found.excerpt, found, CANDIDATES)])
    names = [each.passage.document for each in ranked.passages]
    return names.index(question.document) + 1 if question.document in names else None


def measure(
    directory: OpenDirectory,
    vectors: RememberedVectors,
    questions: Sequence[Question],
    weights: Sequence[PassageWeights],
    console: Console,
) -> dict[str, list[list[int | None]]]:
    """Returns the places of the questions' paragraphs by way and weights."""
    chance = random.Random(SEED)
    rerankers = [MaxSimReranker(vectors, each) for each in weights]
    alone = [retrieved(directory.retriever, question.text, CANDIDATES) for question in questions]
    places: dict[str, list[list[int | None]]] = {}
    for index, question in enumerate(track(questions, "asking", console=console)):
        asked = {"as it is": (question.text, question.text)}
        asked |= ways(alone[index], alone[(index + len(questions) // 2) % len(questions)], chance)
        for name, (text, main) in asked.items():
            found = shortlist(directory, text, main)
            columns = places.setdefault(name, [[] for _ in rerankers])
            for column, reranker in zip(columns, rerankers, strict=True):
                column.append(place(reranker, found, question))
    return places


def shares(places: Sequence[int | None]) -> str:
    """Returns the shares of paragraphs that are first and among the first five."""
    counts = [sum(each is not None and each <= most for each in places) for most in (1, FIRST)]
    return ", ".join(f"{count / max(1, len(places)):.3f}" for count in counts)


def main() -> None:
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--encoder", type=Path, default=REPOSITORY / "models" / "minilm-l6", help="model folder")
    parser.add_argument("--questions", type=int, default=10_000, help="most questions, evenly spread")
    parser.add_argument("--others", type=float, action="append", help="weight of the other wordings; may be repeated")
    parser.add_argument("--places", type=int, action="append", help="places for each kept passage; may be repeated")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    console = Console(stderr=True)
    others, places = arguments.others or [PassageWeights().others], arguments.places or [PassageWeights().places]
    weights = [PassageWeights(others=0.0, places=NO_PLACES)]
    weights += [PassageWeights(others=each, places=kept) for each, kept in product(others, (NO_PLACES, *places))]
    try:
        configure_thread_pool(arguments.threads)
        encoder = TextEncoder.open(arguments.encoder)
        documents, questions = read_squad(arguments.data)
        questions = questions[:: max(1, -(-len(questions) // arguments.questions))]
        with (
            tempfile.TemporaryDirectory() as scratch,
            opened_collection(Path(scratch), encoder, RetrieverOptions(), documents, console) as directory,
        ):
            found = measure(directory, RememberedVectors(encoder), questions, weights, console)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    show(found, weights)


def show(found: dict[str, list[list[int | None]]], weights: Sequence[PassageWeights]) -> None:
    """Prints a table for each half of the questions."""
    for half, name in enumerate(("even-numbered questions", "odd-numbered questions")):
        table = Table("asked", *(heading(each) for each in weights), title=name)
        for way, columns in found.items():
            table.add_row(way, *(shares(column[half::2]) for column in columns))
        Console().print(table)


def heading(weights: PassageWeights) -> str:
    """Returns the name of a column."""
    if not weights.others:
        return "main alone"
    return f"others {weights.others:g}" + ("" if weights.places == NO_PLACES else f", places {weights.places}")


if __name__ == "__main__":
    main()
