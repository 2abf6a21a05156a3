"""Tokens at other positions: in the first layer, whose keys know nothing of the text before, exactly what a run there
would have stored, up to one rounding more."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.rope_shift import PageViews, RopeShift, read_rotary_tables
from edge_rag.runtime.lowering.geometry import read_geometry
from tests.synthetic.tiny_model import FAMILIES, FIXTURES
from tests.unit.runtime.decoder.rope_shift_reference import move

TEXT = np.random.default_rng(5).integers(3, 512, 45)
PAGES = 12


def store(decoder: PagedDecoder, pages: NDArray[np.int32], first: int) -> NDArray[np.int64]:
    positions = np.arange(first, first + len(TEXT), dtype=np.int32)
    slots = pages[positions // 32] * np.int32(32) + positions % np.int32(32)
    ends = np.array([0, len(TEXT)], np.int32)
    decoder.run(PackedStep(TEXT, positions, slots, ends, pages[None], np.array([0])))
    return slots.astype(np.int64)


def contents(decoder: PagedDecoder, slots: NDArray[np.int64], layer: int = 0) -> tuple[NDArray[np.float32], ...]:
    """Keys, key scales, values as they are read by the operator: float32 [n, heads, head size]."""
    views = PageViews(decoder.geometry, decoder._layers[layer])
    page, offset = np.divmod(slots, 32)
    heads = decoder.geometry.kv_heads
    scales = views.key_scales[page, :, offset]
    keys = views.keys[page, :, :, offset].reshape(len(slots), heads, -1).astype(np.float32) - 128
    values = views.values[page, :, offset // 4, :, offset % 4].astype(np.float32)
    return keys * scales[..., None], scales, values * views.value_scales[page, :, offset][..., None]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("distance", [0, 1, 37, 150])
def test_a_moved_token_is_what_a_run_at_its_new_position_stores(family: str, distance: int) -> None:
    decoder = PagedDecoder.open(FIXTURES / family, PAGES)
    there = store(decoder, np.arange(7, dtype=np.int32), 5 + distance)
    expected = contents(decoder, there)
    sources = store(decoder, np.array([9, 8], np.int32), 5)
    targets = np.array([10 * 32 + 3, *range(11 * 32 - 22, 11 * 32 + 22)])
    decoder.move_tokens(sources, targets, distance)
    keys, scales, values = contents(decoder, targets)
    np.testing.assert_array_equal(values, expected[2])
    steps = np.maximum(scales, expected[1])[..., None]
    assert (np.abs(keys - expected[0]) <= (0 if distance == 0 else 2.1) * steps).all()
    assert distance == 0 or not np.array_equal(keys, contents(decoder, sources)[0])


def test_a_move_touches_no_other_slot_in_any_layer() -> None:
    decoder = PagedDecoder.open(FIXTURES / "tiny-qwen3", PAGES)
    sources = store(decoder, np.array([0, 1], np.int32), 0)
    other = store(decoder, np.array([2, 3], np.int32), 0)
    layers = range(decoder.geometry.layers)
    before = [contents(decoder, np.concatenate([sources, other]), layer) for layer in layers]
    decoder.move_tokens(sources, np.arange(4 * 32, 4 * 32 + 45), 9)
    after = [contents(decoder, np.concatenate([sources, other]), layer) for layer in layers]
    for left, right in zip(before, after, strict=True):
        for one, two in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, two)


def test_keys_are_rotated_without_the_scaling_of_the_tables() -> None:
    decoder = PagedDecoder.open(FIXTURES / "tiny-llama", PAGES)
    tables = read_rotary_tables(FIXTURES / "tiny-llama")
    sources = store(decoder, np.array([0, 1], np.int32), 0)
    lengths = []
    for factor, first in ((1.0, 4 * 32), (1.7, 6 * 32)):
        scaled = [(cosine * np.float32(factor), sine * np.float32(factor)) for cosine, sine in tables]
        RopeShift(decoder.geometry, decoder._layers, scaled).move(sources, np.arange(first, first + 45), 20)
        lengths.append(np.linalg.norm(contents(decoder, np.arange(first, first + 45))[0], axis=-1))
    np.testing.assert_allclose(lengths[0], np.linalg.norm(contents(decoder, sources)[0], axis=-1), rtol=0.03)
    np.testing.assert_allclose(lengths[1], lengths[0], rtol=0.01)


@pytest.mark.parametrize(("heads", "size", "tokens"), [(2, 64, 32), (1, 8, 16), (3, 80, 64), (1, 256, 32)])
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_the_library_rotates_keys_as_numpy_does(heads: int, size: int, tokens: int, share: float) -> None:
    random = np.random.default_rng(size)
    geometry = replace(read_geometry(FIXTURES / "tiny-llama"), kv_heads=heads, head_size=size, page_tokens=tokens)
    pages = random.integers(-127, 128, (6, geometry.layer_page_bytes)).astype(np.int8)
    for scales in (PageViews(geometry, pages).key_scales, PageViews(geometry, pages).value_scales):
        scales[:] = random.uniform(0.01, 2, scales.shape)
    PageViews(geometry, pages).key_scales[0, :, 3] = 0
    angles = random.uniform(-9, 9, (40, int(size * share)))
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    slots = random.permutation(6 * tokens)
    sources, targets = np.append(slots[slots != 3][:30], 3), slots[slots != 3][-31:]
    expected = pages.copy()
    unit = np.sqrt(cosine[7] ** 2 + sine[7] ** 2)
    move(PageViews(geometry, expected), tokens, sources, targets, cosine[7] / unit, sine[7] / unit)
    RopeShift(geometry, [pages], [(cosine, sine)]).move(sources, targets, 7)
    found, wanted = PageViews(geometry, pages), PageViews(geometry, expected)
    np.testing.assert_array_equal(found.values, wanted.values)
    np.testing.assert_array_equal(found.value_scales, wanted.value_scales)
    np.testing.assert_allclose(found.key_scales, wanted.key_scales, rtol=3e-7)
    # Sums that end in .5 can be rounded either way where a factor differs in its last bit.
    differing = np.abs(found.keys.astype(np.int16) - wanted.keys)
    assert differing.max() <= 1
    assert (differing > 0).mean() < 1e-3


@pytest.mark.parametrize(
    ("sources", "targets", "distance"),
    [([0], [PAGES * 32], 1), ([-1], [0], 1), ([0, 1], [2], 1), ([0], [40], -1), ([0], [40], 100_000)],
)
def test_missing_slots_and_positions_are_refused(sources: list[int], targets: list[int], distance: int) -> None:
    decoder = PagedDecoder.open(FIXTURES / "tiny-llama", PAGES)
    with pytest.raises(InferenceFailed):
        decoder.move_tokens(np.array(sources), np.array(targets), distance)
