"""Measures what an entailment model adds to the rules of mode cite: claims that hold and claims that do not.

    python -m scripts.bench.quality.entailment --model FOLDER [--data FILE] [--json]

A sentence of each paragraph of a SQuAD-format file, among the paragraphs of its article, is taken as it is and altered:
in ways that keep what it says, and in ways that do not, the last of them those that the model was trained on. Then
sixty claims about the sample documents that somebody wrote (claims.json): what a sentence says in other
words, and what it does not say in its own words. Printed is the share of each kind that is accepted: by the rules
alone; by the model alone, of the sentences with most of the claim's words; by both; and as the product does it, where
the model may refuse what the rules accept and accept what lacks only words.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import sentence_spans
from edge_rag.generator.citations.attribution import Attributor
from edge_rag.generator.citations.judge import EntailmentJudge
from edge_rag.reranker.scoring import Stemmer
from edge_rag.runtime.encoder.entailment import EntailmentModel
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.quality.alterations import OTHER, SAME, spliced
from scripts.training.entailment import alterations as trained

REPOSITORY: Final = Path(__file__).resolve().parents[4]
CLAIMS: Final = Path(__file__).with_name("claims.json")
SEED: Final = 3
PASSAGES: Final = 4
READ: Final = 4
LEAST_WORDS: Final = 8
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Claim:
    """What may be written about passages.

    Attributes:
        kind: How it was made.
        text: The claim.
        passages: What it is about.
        same: Whether the passages say it too, or nearly.
    """

    kind: str
    text: str
    passages: tuple[str, ...]
    same: bool


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one kind of claim, as shares of them.

    Attributes:
        claims: How many.
        same: Whether they should be accepted.
        rules: Accepted by the rules.
        model: Accepted by the model.
        both: Accepted by both.
        product: Accepted as mode ``cite`` does it with the model.
        denied: Taken by the model for the contrary of what the most similar sentence says.
    """

    claims: int
    same: bool
    rules: float
    model: float
    both: float
    product: float
    denied: float


def altered_sentences(articles: Sequence[Sequence[str]], most: int) -> Iterator[Claim]:
    """Yields a sentence of each paragraph in all kinds.

    Args:
        articles: The paragraphs of each.
        most: Most paragraphs, evenly spread.
    """
    chance = random.Random(SEED)
    places = [(article, number) for article in articles for number in range(len(article))]
    places = [places[index * len(places) // min(most, len(places))] for index in range(min(most, len(places)))]
    everywhere = [text for article in articles for paragraph in article for text in sentences(paragraph)]
    others = trained.Others(everywhere)
    for article, number in places:
        rest = [paragraph for place, paragraph in enumerate(article) if place != number]
        passages = (article[number], *chance.sample(rest, min(PASSAGES - 1, len(rest))))
        long = [text for text in sentences(article[number]) if len(text.split()) >= LEAST_WORDS]
        if not long:
            continue
        sentence = chance.choice(long)
        made = [(name, alter(sentence, chance), True) for name, alter in SAME]
        made.append(("shortened or respelt, as in training", trained.same(sentence, chance), True))
        made += [(name, alter(sentence, chance), False) for name, alter in OTHER]
        made.append(("halves of two sentences", spliced(sentence, chance.choice(sentences(passages[-1]))), False))
        away = [text for text in everywhere if not any(text in passage for passage in passages)]
        made.append(("of other passages", chance.choice(away), False))
        kinds = [*trained.OPPOSITE, *trained.UNSAID, (others.renamed, 1.0), (others.replaced, 1.0)]
        for alter, _ in kinds:
            made.append((f"{alter.__name__.replace('_', ' ')}, as in training", alter(sentence, chance), False))
        for name, text, same in made:
            if text is not None and (text != sentence or name == SAME[0][0]):
                yield Claim(name, text, passages, same)


def written_claims() -> Iterator[Claim]:
    """Yields the claims that somebody wrote."""
    for each in json.loads(CLAIMS.read_text(encoding="utf-8")):
        for key, kind in (("holds", "written, in other words"), ("fails", "written, wrong")):
            for text in each[key]:
                yield Claim(kind, text, (each["sentence"],), key == "holds")


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


def ranked(passages: Sequence[str]) -> tuple[RankedPassage, ...]:
    """Returns passages as the reranker does."""
    return tuple(
        RankedPassage(
            Passage(ChunkId(number), DocumentId(f"{number}"), f"{number}", None, 0, len(text), text),
            1.0,
            tuple(Sentence(start, end) for start, end in sentence_spans(text)),
        )
        for number, text in enumerate(passages)
    )


def nearest(claim: Claim) -> list[str]:
    """Returns the sentences of the passages with most of the claim's words, best first."""
    words = set(_WORD.findall(claim.text.lower()))
    known = [text for passage in claim.passages for text in sentences(passage)]
    return sorted(known, key=lambda text: -len(words & set(_WORD.findall(text.lower()))))[:READ]


def measure(model: EntailmentModel, claims: Sequence[Claim], least: float) -> tuple[dict[str, Row], float]:
    """Returns what was found of each kind, and the model's mean processor time for a pair, seconds."""
    judge = EntailmentJudge(model, least, least)
    found: dict[str, list[tuple[bool, bool, bool, bool, bool]]] = {}
    seconds, pairs = 0.0, 0
    for claim in claims:
        finding = Attributor(ranked(claim.passages), Stemmer()).find(claim.text)
        premises = nearest(claim)
        began = time.process_time()
        judged = model.probabilities([(premise, claim.text) for premise in premises])
        seconds, pairs = seconds + time.process_time() - began, pairs + len(premises)
        rules, accepted = bool(finding.support), bool(judged[:, 0].max() >= least)
        (verdict,) = judge.decide([finding])
        product, denied = bool(verdict.support), bool(judged[0, 2] >= least)
        found.setdefault(claim.kind, []).append((rules, accepted, rules and accepted, product, denied))
    same = {claim.kind: claim.same for claim in claims}
    rows = {kind: Row(len(all_of), same[kind], *np.mean(all_of, axis=0).tolist()) for kind, all_of in found.items()}
    return rows, seconds / pairs


def main() -> None:
    """Measures as the command line says."""
    shared = Path(os.environ.get("EDGE_RAG_SHARED", REPOSITORY.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--data", type=Path, default=shared / "data" / "xquad-a.json", help="file in SQuAD format")
    parser.add_argument("--paragraphs", type=int, default=120, help="how many of its paragraphs, evenly spread")
    parser.add_argument("--least", type=float, default=0.9, help="probability from which a verdict is acted on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        raise SystemExit(f"{arguments.data} is not there: give a file in SQuAD format with --data")
    configure_thread_pool(arguments.threads)
    data = json.loads(arguments.data.read_text(encoding="utf-8"))["data"]
    articles = [[paragraph["context"] for paragraph in article["paragraphs"]] for article in data]
    claims = [*altered_sentences(articles, arguments.paragraphs), *written_claims()]
    rows, seconds = measure(EntailmentModel.open(arguments.model), claims, arguments.least)
    if arguments.json:
        kinds = {kind: asdict(row) for kind, row in rows.items()}
        print(json.dumps({"kinds": kinds, "processor_seconds_a_pair": seconds}, indent=2))
        return
    table = Table(title=f"{seconds * 1000:.2f} ms of a processor core for a pair")
    for heading in ("claim", "claims", "rules", "model", "both", "product", "denied"):
        table.add_column(heading, justify="left" if heading == "claim" else "right")
    for same, name in ((True, "all that hold"), (False, "all that do not")):
        some = {kind: row for kind, row in rows.items() if row.same is same}
        for kind, row in some.items():
            shares = (f"{share:.1%}" for share in (row.rules, row.model, row.both, row.product, row.denied))
            table.add_row(kind, f"{row.claims}", *shares)
        means = (
            f"{mean(getattr(row, column) for row in some.values()):.1%}"
            for column in ("rules", "model", "both", "product", "denied")
        )
        table.add_row(f"[bold]{name}, mean of kinds", "", *means)
    Console().print(table)


if __name__ == "__main__":
    main()
