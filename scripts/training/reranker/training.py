"""The loop: lists of passages in, gradients, and now and then a state that training can go on from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import cos, pi
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.functional import cross_entropy

from scripts.training.loop import Optimization
from scripts.training.pair_model import PairModel
from scripts.training.reranker.examples import Example

_RECENT: Final = 100


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast.

    Attributes:
        steps: Updates altogether, at least 1.
        lists: Examples an update.
        rate: Largest learning rate; reached after ``warm_up`` steps, then falling to 0 along half a cosine.
        warm_up: Steps.
        save_every: Steps between two saved states.
    """

    steps: int
    lists: int
    rate: float
    warm_up: int
    save_every: int

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, 0-based."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.rate * (1 + cos(pi * done)) / 2


@dataclass(frozen=True, slots=True)
class Progress:
    """How training goes; shares are of the latest lists, each of which is seen once and before it is learned from.

    Attributes:
        step: Updates done.
        loss: Mean of the latest, nats a list.
        first: Lists whose right passage the cross-encoder puts first.
        max_sim_first: The same by the default reranker.
        sum_first: The same by the sum of the two.
    """

    step: int
    loss: float
    first: float
    max_sim_first: float
    sum_first: float


class Trainer:
    """Trains a cross-encoder to put each list's first passage first, alone and added to max-sim.

    The loss is the mean of two listwise softmax cross-entropies (Cao et al., Learning to Rank, 2007, top one): of the
    cross-encoder's scores, and of their sum with the max-sim reranker's, so that what is learned serves either way.

    Args:
        model: What is trained.
        schedule: How long and how fast.
        identity: What decides the result besides the schedule; a state of another identity is refused.
        folder: Where states are kept.
    """

    def __init__(self, model: PairModel, schedule: Schedule, identity: str, folder: Path) -> None:
        self._model = model
        self._schedule = schedule
        self._optimization = Optimization(model, schedule.rate_at, f"{identity} {asdict(schedule)}", folder)
        self._recent: deque[tuple[float, float, float, float]] = deque(maxlen=_RECENT)

    @property
    def step(self) -> int:
        """Updates done."""
        return self._optimization.step

    def resume(self) -> None:
        """Goes on from the saved state, if there is one.

        Raises:
            SystemExit: It was made with other options.
        """
        self._optimization.resume()

    def save(self) -> None:
        """Writes the state aside, then in place."""
        self._optimization.save()

    def run(
        self, example: Callable[[int], Example], report: Callable[[Progress], None], stop: Callable[[], bool]
    ) -> bool:
        """Trains to the schedule's end, or until it is to stop, and saves the state.

        Args:
            example: Makes the example of a number.
            report: Told after every step.
            stop: Asked after every step.

        Returns:
            Whether the end was reached.
        """
        while self.step < self._schedule.steps:
            first = self.step * self._schedule.lists
            self._update([example(number) for number in range(first, first + self._schedule.lists)])
            loss, own, max_sim, both = (sum(each) / len(self._recent) for each in zip(*self._recent, strict=True))
            report(Progress(self.step, loss, own, max_sim, both))
            ending = self.step == self._schedule.steps or stop()
            if ending or self.step % self._schedule.save_every == 0:
                self.save()
            if ending:
                break
        return self.step == self._schedule.steps

    def _update(self, examples: Sequence[Example]) -> None:
        scores = self._model.scores([(each.question, passage) for each in examples for passage in each.passages])
        ends = [0]
        for each in examples:
            ends.append(ends[-1] + len(each.passages))
        lists = [
            (scores[start:end], torch.tensor(each.max_sim))
            for each, (start, end) in zip(examples, pairwise(ends), strict=True)
        ]
        losses = [(listwise(own) + listwise(own + max_sim)) / 2 for own, max_sim in lists]
        self._optimization.update(torch.stack(losses).mean())
        self._recent.extend(
            (float(each.detach()), first_wins(own), first_wins(max_sim), first_wins(own + max_sim))
            for each, (own, max_sim) in zip(losses, lists, strict=True)
        )


def listwise(scores: Any) -> Any:
    """Cross-entropy of choosing the first of a list by the softmax of its scores: tensor [list] to a scalar, nats."""
    return cross_entropy(scores.unsqueeze(0), torch.zeros(1, dtype=torch.long))


def first_wins(scores: Any) -> float:
    """1.0 if the first score is above all others, else 0.0."""
    return float(bool((scores[0] > scores[1:]).all()))
