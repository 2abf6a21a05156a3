"""The forms of keys and values that are compared lose what their bits cannot hold, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.bench.quality.kv_precision.forms import (
    Form,
    by_channel,
    first_tokens,
    in_equal_steps,
    in_floats,
    of_layers,
    spread,
    transformed,
    without_mean,
    without_page_mean,
)

SIZE = 64
TOKENS = 70
RANDOM = np.random.default_rng(5)
MIXING = RANDOM.normal(size=(SIZE, SIZE)) * np.geomspace(8, 0.1, SIZE)
HEADS = (RANDOM.normal(size=(2, TOKENS, SIZE)) @ MIXING).astype(np.float32)
MOMENTS = np.stack([np.stack([head.T @ head for head in HEADS.astype(np.float64)])])
METRICS = np.broadcast_to(np.eye(SIZE), MOMENTS.shape)


def loss(form: Form, heads: np.ndarray = HEADS) -> float:
    return float(np.square(form.kept(0, heads) - heads).sum() / np.square(heads).sum())


@pytest.mark.parametrize(
    ("form", "most", "held"),
    [
        (in_floats(SIZE), 0.0, 256),
        (in_equal_steps(SIZE), 0.001, 68),
        (spread(SIZE, 8), 0.0002, 68),
        (spread(SIZE, 5), 0.005, 42),
        (spread(SIZE, 4), 0.015, 34),
        (spread(SIZE, 4, groups=2), 0.012, 36),
        (by_channel(SIZE), 0.02, 40),
    ],
)
def test_a_form_loses_little_and_names_its_bytes(form: Form, most: float, held: float) -> None:
    assert loss(form) <= most
    assert form.bytes == held


def test_the_dimensions_that_vary_most_get_the_most_bits() -> None:
    uneven = transformed(MOMENTS, METRICS, ((32, 5), (32, 3)))
    assert uneven.bytes == 36
    assert loss(uneven) < loss(transformed(MOMENTS, METRICS, ((64, 4),))) < loss(spread(SIZE, 4))


def test_a_transform_spares_the_errors_that_count() -> None:
    metric = np.diag(np.geomspace(1e4, 1e-2, SIZE))
    metrics = np.broadcast_to(metric, MOMENTS.shape)

    def counted(form: Form) -> float:
        error = (form.kept(0, HEADS) - HEADS).astype(np.float64)
        return float((error @ metric * error).sum())

    classes = ((32, 5), (32, 3))
    assert counted(transformed(MOMENTS, metrics, classes)) < counted(transformed(MOMENTS, METRICS, classes))


def test_what_all_tokens_share_costs_no_bits() -> None:
    shifted = HEADS + np.float32(500)
    means = shifted.mean(axis=1, dtype=np.float64)[None]
    apart = spread(SIZE, 4)
    for form in (without_mean(means, apart), without_page_mean(SIZE, apart)):
        assert loss(form, shifted) < loss(apart, shifted) / 10


def test_tokens_and_layers_that_are_named_keep_their_own_form() -> None:
    kept = first_tokens(4, in_floats(SIZE), spread(SIZE, 4)).kept(0, HEADS)
    assert np.array_equal(kept[:, :4], HEADS[:, :4])
    assert not np.array_equal(kept[:, 4:], HEADS[:, 4:])
    ends = of_layers((0,), 2, in_floats(SIZE), spread(SIZE, 4))
    assert np.array_equal(ends.kept(0, HEADS), HEADS)
    assert not np.array_equal(ends.kept(1, HEADS), HEADS)
    assert ends.bytes == (256 + 34) / 2
