"""Measures an entailment model on pairs that it was not trained on.

    python -m scripts.training.entailment.held_out --clones FOLDER --model FOLDER [--hans FILE] [--json]

The first FOLDER has the clones that README.md lists, and of the sets that are only measured with; FILE is what HANS's
generator writes. Printed are the share of right verdicts, where a set does not tell neutral from contradiction only
whether it is entailment; the share of entailed and of other pairs that get at least --least as the probability of
entailment; and the share of entailed pairs that get as much for contradiction.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from edge_rag.runtime.encoder.entailment import EntailmentModel
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.training.entailment.pairs import LABELS, Pair, Verdict
from scripts.training.entailment.sources import Repository, joined, multi_nli, written_pairs

SNLI_TEST = Repository("OanaMariaCamburu/e-SNLI", "7b585a3f077fdea899780eb0473940522ae44a2e", "CC-BY-SA-4.0")
FEVER = Repository("TalSchuster/FeverSymmetric", "fa25d17e73ea0694edc78133ec654b9f32f6db73", "CC-BY-SA-3.0")
QUANTITIES = Repository("IoanaMazilu/msc_qnli", "6f1cad9455a6eea5c9f70f2581c6b8f5f76363fc", "Apache-2.0 (AQuA-RAT)")
SEED = 5


@dataclass(frozen=True, slots=True)
class Row:
    """What was found on one set.

    Attributes:
        pairs: How many.
        right: Share of right verdicts.
        accepted: Share of entailed pairs that are accepted.
        wrongly_accepted: Share of other pairs that are accepted.
        wrongly_denied: Share of entailed pairs that are taken for contradictions.
    """

    pairs: int
    right: float
    accepted: float
    wrongly_accepted: float
    wrongly_denied: float


def held_out(clones: Path, hans: Path | None) -> Iterator[tuple[str, list[Pair]]]:
    """Yields the sets by name, without premises that the model was trained on."""
    seen = {pair.premise for pair in written_pairs(clones)}
    for name, pairs in _sets(clones, hans):
        yield name, [pair for pair in pairs if pair.premise not in seen]


def _sets(clones: Path, hans: Path | None) -> Iterator[tuple[str, list[Pair]]]:
    columns = [SNLI_TEST.text(clones, f"dataset/eSNLI/{name}.test").splitlines() for name in ("s1", "s2", "labels")]
    rows = zip(*columns, strict=True)
    known = {label.value for label in LABELS}
    yield "SNLI, test", [Pair(joined(one), joined(two), Verdict(label)) for one, two, label in rows if label in known]
    yield "MultiNLI, 2,000 of it", list(multi_nli(clones, "validation", held_out=True))
    lines = FEVER.text(clones, "symmetric_v0.2/fever_symmetric_test.jsonl").splitlines()
    yield (
        "FEVER symmetric, test",
        [
            Pair(joined(row["evidence"]), joined(row["claim"]), _verdict(row["label"] == "SUPPORTS"))
            for row in map(json.loads, lines)
        ],
    )
    table = csv.DictReader(io.StringIO(QUANTITIES.text(clones, "data/equate/StressTest.csv")))
    yield (
        "EQUATE, stress test of numbers",
        [Pair(joined(row["premise"]), joined(row["hypothesis"]), Verdict(row["label"])) for row in table],
    )
    if hans is not None:
        generated = csv.DictReader(io.StringIO(hans.read_text(encoding="utf-8")), delimiter="\t")
        yield (
            "HANS, from its generator",
            [
                Pair(joined(row["sentence1"]), joined(row["sentence2"]), _verdict(row["gold_label"] == "entailment"))
                for row in generated
            ],
        )


def measure(model: EntailmentModel, pairs: Sequence[Pair], least: float) -> Row:
    """Judges all pairs of a set."""
    found = model.probabilities([(pair.premise, pair.hypothesis) for pair in pairs])
    verdicts = [LABELS[column] for column in found.argmax(axis=1)]
    entailed = np.array([pair.verdict is Verdict.ENTAILMENT for pair in pairs])
    right = [
        (verdict is Verdict.ENTAILMENT) == truth
        if pair.verdict is Verdict.NOT_ENTAILED or _two(pairs)
        else verdict is pair.verdict
        for verdict, pair, truth in zip(verdicts, pairs, entailed, strict=True)
    ]
    accepted, denied = found[:, 0] >= least, found[:, 2] >= least
    return Row(
        len(pairs),
        float(np.mean(right)),
        float(accepted[entailed].mean()),
        float(accepted[~entailed].mean()),
        float(denied[entailed].mean()),
    )


def _two(pairs: Sequence[Pair]) -> bool:
    """Whether a set tells only entailment from all else."""
    return any(pair.verdict is Verdict.NOT_ENTAILED for pair in pairs)


def _verdict(entailed: bool) -> Verdict:
    return Verdict.ENTAILMENT if entailed else Verdict.NOT_ENTAILED


def main() -> None:
    """Measures as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True, help="folder of the clones")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--hans", type=Path, help="HANS's heuristics_evaluation_set.txt")
    parser.add_argument("--pairs", type=int, default=1_000, help="most pairs of a set, chosen at random")
    parser.add_argument("--least", type=float, default=0.9, help="probability from which a verdict is acted on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    configure_thread_pool(arguments.threads)
    model = EntailmentModel.open(arguments.model)
    chance = random.Random(SEED)
    rows = {
        name: measure(model, chance.sample(pairs, min(arguments.pairs, len(pairs))), arguments.least)
        for name, pairs in held_out(arguments.clones, arguments.hans)
    }
    if arguments.json:
        print(json.dumps({name: asdict(row) for name, row in rows.items()}, indent=2))
        return
    table = Table(title=f"accepted and denied from {arguments.least}")
    for heading in ("set", "pairs", "right", "accepted", "wrongly accepted", "wrongly denied"):
        table.add_column(heading, justify="left" if heading == "set" else "right")
    for name, row in rows.items():
        shares = (f"{share:.1%}" for share in (row.right, row.accepted, row.wrongly_accepted, row.wrongly_denied))
        table.add_row(name, f"{row.pairs}", *shares)
    Console().print(table)


if __name__ == "__main__":
    main()
