"""What is trained when: stages by tokens, the learning rate by the share of them that is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from scripts.training.episode import EpisodeShape

_WARM_UP_STEPS = 50
_FULL_UNTIL = 0.15
_LEAST_RATE = 0.02


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a run.

    Attributes:
        until: Share of the run's tokens at which it ends, 0 to 1.
        shapes: One of them for each step, drawn with equal chance.
        stretched: Share of episodes whose positions have gaps.
    """

    until: float
    shapes: tuple[EpisodeShape, ...]
    stretched: float


_FIRST = EpisodeShape(96, 160, (1, 2, 2), 40, plain=True)
_SHORT = EpisodeShape(320, 320, (2, 3, 3, 4), 100)
_LONG = EpisodeShape(832, 320, (3, 3, 4, 4, 5), 120)
STAGES = (
    Stage(0.12, (_FIRST,), 0.5),
    Stage(0.55, (_SHORT,), 0.65),
    Stage(1.0, (_SHORT, _LONG, _LONG), 0.4),
)
"""Copying is learned on short prompts, choosing on longer ones, and the end is spent on what the daemon will ask."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run.

    Attributes:
        number: From 0.
        shape: Of its episodes.
        episodes: How many.
        stretched: Share of them whose positions have gaps.
        rate: Share of the full learning rate.
        begun: Tokens, filling included, of all steps before.
    """

    number: int
    shape: EpisodeShape
    episodes: int
    stretched: float
    rate: float
    begun: int

    @property
    def tokens(self) -> int:
        """Tokens of this step, filling included."""
        return self.episodes * (self.shape.prefix_tokens + self.shape.exchange_tokens)


def steps(tokens: int, step_tokens: int, seed: int, stages: tuple[Stage, ...] = STAGES) -> Iterator[Step]:
    """Yields a run's steps, a function of the arguments alone.

    Args:
        tokens: Of the whole run, filling included; the step that reaches them is the last.
        step_tokens: Of a step, about; at least one episode is made.
        seed: Draws the shapes.
        stages: In order, the last one until 1.
    """
    random = Random(f"{seed} shapes")
    begun = number = 0
    while begun < tokens:
        done = begun / tokens
        stage = next(s for s in stages if done < s.until)
        shape = random.choice(stage.shapes)
        episodes = max(1, step_tokens // (shape.prefix_tokens + shape.exchange_tokens))
        step = Step(number, shape, episodes, stage.stretched, rate(number, done), begun)
        yield step
        begun += step.tokens
        number += 1


def rate(number: int, done: float) -> float:
    """Returns the share of the full learning rate: a warm-up by steps, a plateau, then down in a straight line.

    Args:
        number: The step, from 0.
        done: Share of the run that is behind it, 0 to 1.
    """
    warm = min(1.0, (number + 1) / _WARM_UP_STEPS)
    return warm * (1.0 if done < _FULL_UNTIL else max(_LEAST_RATE, (1 - done) / (1 - _FULL_UNTIL)))
