"""Every kernel build against the scalar one, bit for bit: a page written on one machine reads the same on another."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.errors import ModelError
from tests.unit.ops.attention_case import Conversation, Floats, Heads, Pages
from tests.unit.ops.op_graph import BUILD_VARIABLE, LIBRARY_VARIABLE, builds, open_op, run_op
from tests.unit.ops.test_paged_attention import layers

SCALAR, *OTHERS = builds()

Steps = list[dict[int, int]]


def outcome(build: str, heads: Heads, steps: Steps, context: int, seed: int) -> tuple[list[Floats], Pages]:
    conversation = Conversation.start(heads, sequences=3, context=context, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BUILD_VARIABLE, build)
        outputs = [run_op(heads, conversation.step(counts), conversation.pages) for counts in steps]
    return outputs, conversation.pages


def assert_builds_agree(build: str, heads: Heads, steps: Steps, context: int, seed: int) -> None:
    outputs, pages = outcome(build, heads, steps, context, seed)
    expected_outputs, expected_pages = outcome(SCALAR, heads, steps, context, seed)
    for output, expected in zip(outputs, expected_outputs, strict=True):
        np.testing.assert_array_equal(output.view(np.int32), expected.view(np.int32))
    np.testing.assert_array_equal(pages, expected_pages)


@pytest.mark.parametrize("build", OTHERS)
@settings(max_examples=5 if LIBRARY_VARIABLE in os.environ else 25, deadline=None)
@given(
    heads=layers(),
    steps=st.lists(st.dictionaries(st.integers(0, 2), st.integers(1, 150), min_size=1), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_steps_over_any_pages_give_the_scalar_bits(build: str, heads: Heads, steps: Steps, seed: int) -> None:
    assert_builds_agree(build, heads, steps, context=600, seed=seed)


@pytest.mark.parametrize(("window", "softcap"), [(-1, 0.0), (515, 30.0)])
@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("build", OTHERS)
def test_long_contexts_give_the_scalar_bits(build: str, head_size: int, window: int, softcap: float) -> None:
    heads = Heads(
        query_heads=7,
        kv_heads=1,
        head_size=head_size,
        rotary_pairs=head_size // 2,
        scale=head_size**-0.5,
        window=window,
        softcap=softcap,
    )
    assert_builds_agree(build, heads, [{0: 1030, 1: 515}, {0: 1, 1: 1, 2: 1}, {1: 9}], context=1040, seed=head_size)


def test_a_build_that_does_not_run_here_is_refused_with_the_names_of_those_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(BUILD_VARIABLE, "abacus")
    with pytest.raises(ModelError, match=f"abacus; this machine can run {', '.join(builds())}"):
        open_op(Heads())
