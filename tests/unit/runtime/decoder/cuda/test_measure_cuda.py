"""What scripts/measure_cuda counts, on two runners that are both on processor cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from scripts.bench.engine.cuda import measure, prompts_from, same_share, write
from tests.support.accelerators.cuda import cuda_copy, greedily
from tests.support.accelerators.cuda_reference import CudaReference
from tests.synthetic.tiny_model import FIXTURES, reference

FOLDER = FIXTURES / "tiny-qwen2"
TEXT = reference("tiny-qwen2").token_ids


def test_sequences_side_by_side_write_what_each_writes_alone() -> None:
    decoder = PagedDecoder.open(FOLDER, 12)
    prompts = prompts_from(TEXT, 3, 40)
    written = write(decoder, prompts, 8)
    for prompt, tokens in zip(prompts, written.tokens, strict=True):
        assert tokens.tolist() == greedily(decoder, prompt, 8)
    assert written.prefill_per_second > 0
    assert written.decode_per_second > 0


def test_prompts_begin_at_different_places_of_the_text() -> None:
    prompts = prompts_from(np.arange(10), 3, 8)
    assert prompts.tolist() == [list(range(8)), [3, 4, 5, 6, 7, 8, 9, 0], [6, 7, 8, 9, 0, 1, 2, 3]]


@pytest.mark.parametrize(("other", "share"), [([[1, 2, 3, 4]], 1), ([[1, 9, 3, 4]], 0.25), ([[9, 2, 3, 4]], 0)])
def test_tokens_after_the_first_other_one_are_not_the_same(other: list[list[int]], share: float) -> None:
    assert same_share(np.array([[1, 2, 3, 4]]), np.array(other)) == share


def test_both_runners_are_measured_on_the_same_prompts(tmp_path: Path) -> None:
    folder = cuda_copy(FOLDER, tmp_path / "model", TEXT)
    cores, card = measure(PagedDecoder.open(folder, 4), CudaReference(folder, 4), TEXT, 2, 40, 6)
    assert (cores.provider, cores.sequences, cores.same) == ("cpu", 2, 1)
    assert (card.provider, card.sequences) == ("cuda", 2)
    assert card.same == 1
