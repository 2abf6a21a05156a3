"""Episodes as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from scripts.training.quoter.text.episode import Episode, EpisodeShape

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_FURTHEST = 1100
"""Position that gaps between sentences move questions to at most, so that long prompts look familiar."""

_BRANCH, _MARKER, _FOLLOWING = 3.0, 1.0, 0.5
_LAST_WORD, _FIRST_OF_ANSWER, _OTHER_WORD = 1.0, 0.4, 0.15


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step sees. Rows are episodes; columns are prefix tokens, then those of questions and answers.

    Attributes:
        token_ids: int64 [episodes, prefix + exchanges].
        positions: int64, the same shape.
        prefixes: int64 [episodes], tokens of each prefix.
        segments: int64 [episodes, exchanges], which exchange a token belongs to, -1 for none.
        targets: int64 [predictions, 3]: episode, column whose output predicts, token.
        weights: float32 [predictions].
        choices: int64 [branches]: which predictions choose a sentence.
        allowed: int64 [branches, widest]: the tokens to choose among, the right one first, filled up with -1.
        exchange_of: int64 [branches]: number of the exchange in the batch.
        looks: int64 [looks, 4]: episode, column among the exchanges, first and one past the last column to look at.
        look_weights: float32 [looks].
        openings: int64 [openings, 4]: episode, column within a sentence, and that sentence's first two tokens.
        tokens: Tokens that are no filling.
    """

    token_ids: Ints
    positions: Ints
    prefixes: Ints
    segments: Ints
    targets: Ints
    weights: Floats
    choices: Ints
    allowed: Ints
    exchange_of: Ints
    looks: Ints
    look_weights: Floats
    openings: Ints
    tokens: int


def make_batch(episodes: Sequence[Episode], shape: EpisodeShape, stretched: float, random: Random) -> Batch:
    """Lays episodes out.

    Args:
        episodes: At least one, none larger than the shape.
        shape: Their size.
        stretched: Share of the episodes whose positions have gaps.
        random: Chooses the gaps and where openings are asked for.
    """
    width = shape.prefix_tokens + shape.exchange_tokens
    token_ids = np.zeros((len(episodes), width), np.int64)
    positions = np.zeros((len(episodes), width), np.int64)
    segments = np.full((len(episodes), shape.exchange_tokens), -1, np.int64)
    targets: list[tuple[int, int, int]] = []
    weights: list[float] = []
    choices: list[int] = []
    allowed: list[tuple[int, ...]] = []
    exchange_of: list[int] = []
    looks: list[tuple[int, int, int, int]] = []
    look_weights: list[float] = []
    openings: list[tuple[int, int, int, int]] = []
    exchanges = 0
    for row, episode in enumerate(episodes):
        size = len(episode.prefix)
        token_ids[row, :size] = episode.prefix
        where = _positions(episode, shape, stretched, random)
        positions[row, : shape.prefix_tokens] = where[:-1]
        for begin, end in episode.spans:
            for column in random.sample(range(begin + 1, end), min(3, end - begin - 1)):
                openings.append((row, column, episode.prefix[begin], episode.prefix[begin + 1]))
        at = 0
        for number, exchange in enumerate(episode.exchanges):
            said = exchange.question + exchange.answer
            asked = len(exchange.question)
            begin = shape.prefix_tokens + at
            token_ids[row, begin : begin + len(said)] = said
            positions[row, begin : begin + len(said)] = where[-1] + np.arange(len(said))
            segments[row, at : at + len(said)] = number
            if exchange.span is not None:
                for word in range(2, asked):
                    looks.append((row, at + word, *exchange.span))
                    look_weights.append(_LAST_WORD if word == asked - 1 else _OTHER_WORD)
                for word in (asked, asked + 1):
                    looks.append((row, at + word, *exchange.span))
                    look_weights.append(_FIRST_OF_ANSWER)
            branches = {branch.at: branch for branch in exchange.branches}
            for place, token in enumerate(exchange.answer):
                if branch := branches.get(place):
                    choices.append(len(targets))
                    allowed.append(branch.allowed)
                    exchange_of.append(exchanges)
                targets.append((row, begin + asked + place - 1, token))
                late = place >= len(exchange.answer) - 3
                weights.append(_BRANCH if branch or place == 0 else _MARKER if late else _FOLLOWING)
            exchanges += 1
            at += len(said)
    widest = max((len(tokens) for tokens in allowed), default=1)
    padded = [tokens + (-1,) * (widest - len(tokens)) for tokens in allowed]
    return Batch(
        token_ids=token_ids,
        positions=positions,
        prefixes=np.array([len(episode.prefix) for episode in episodes], np.int64),
        segments=segments,
        targets=np.array(targets, np.int64),
        weights=np.array(weights, np.float32),
        choices=np.array(choices, np.int64),
        allowed=np.array(padded, np.int64).reshape(len(padded), widest),
        exchange_of=np.array(exchange_of, np.int64),
        looks=np.array(looks, np.int64).reshape(-1, 4),
        look_weights=np.array(look_weights, np.float32),
        openings=np.array(openings, np.int64).reshape(-1, 4),
        tokens=int((segments >= 0).sum()) + sum(len(episode.prefix) for episode in episodes),
    )


def _positions(episode: Episode, shape: EpisodeShape, stretched: float, random: Random) -> Ints:
    """Returns positions int64 [prefix + 1], the last being where exchanges begin; some have gaps between sentences."""
    size = len(episode.prefix)
    where = np.arange(shape.prefix_tokens + 1, dtype=np.int64)
    spare = _FURTHEST - shape.prefix_tokens
    where[-1] = size
    if random.random() >= stretched:
        return where
    gap = random.randint(0, spare)
    cuts = [begin for begin, _ in random.sample(episode.spans, min(3, len(episode.spans)))] + [size]
    shares = [random.random() ** 2 for _ in cuts]
    for cut, share in zip(cuts, shares, strict=True):
        shift = int(gap * share / sum(shares))
        where[cut:-1] += shift
        where[-1] += shift
    return where
