"""What is trained when.

Stages end after a number of tokens, and the learning rate stays where it is until the last part of a run. So runs of
different lengths are the same run until the shorter one cools down, and how long one becomes can be decided late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from scripts.training.quoter.text.episode import EpisodeShape

_WARM_UP_STEPS = 50
_FULL_UNTIL = 0.6
_LEAST_RATE = 0.02


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a run.

    Attributes:
        until: Tokens at which it ends; None for the last stage, which takes the rest.
        shapes: One of them for each step, drawn with equal chance.
        stretched: Share of episodes whose positions have gaps.
    """

    until: int | None
    shapes: tuple[EpisodeShape, ...]
    stretched: float


_FIRST = EpisodeShape(96, 160, (1, 2, 2), 40, plain=True)
_SHORT = EpisodeShape(320, 384, (2, 3, 3, 4), 100)
_LONG = EpisodeShape(704, 448, (3, 3, 4, 4, 5), 120)
STAGES = (
    Stage(400_000, (_FIRST,), 0.5),
    Stage(1_400_000, (_SHORT,), 0.65),
    Stage(None, (_SHORT, _LONG, _LONG), 0.4),
)
"""Copying is learned on short prompts, choosing on longer ones, and the rest is spent on what the daemon will ask."""


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
        stages: In order.
    """
    random = Random(f"{seed} shapes")
    begun = number = 0
    while begun < tokens:
        stage = next(s for s in stages if s.until is None or begun < s.until)
        shape = random.choice(stage.shapes)
        episodes = max(1, step_tokens // (shape.prefix_tokens + shape.exchange_tokens))
        step = Step(number, shape, episodes, stage.stretched, rate(number, begun / tokens), begun)
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


def plateau(tokens: int) -> int:
    """Returns the tokens up to which a run of this many is the same as any longer one."""
    return int(tokens * _FULL_UNTIL)
