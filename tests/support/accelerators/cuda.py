"""Models in their form for CUDA, calibrated on a known text."""

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.engine.ports import ModelRunner
from edge_rag.runtime.decoder.cuda.folder import write_cuda_form
from edge_rag.runtime.decoder.cuda.kv_scales import ObservedKv, scales_of
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder


def cuda_copy(folder: Path, target: Path, token_ids: NDArray[np.int64]) -> Path:
    """Copies a model folder and gives the copy a form for CUDA with scales from one text."""
    copy = Path(shutil.copytree(folder, target))
    seen = ObservedKv(PagedDecoder.open(copy, -(-token_ids.size // 32)))
    seen.observe(token_ids)
    write_cuda_form(copy, copy, scales_of(seen.keys, seen.values, margin=1.1), {"tokens": seen.tokens})
    return copy


def greedily(runner: ModelRunner, prompt: NDArray[np.int64], count: int) -> list[int]:
    """Continues a prompt on the runner's first pages, a token a step, each the likeliest; returns the new tokens."""
    tokens, done = list(prompt), 0
    while len(tokens) < prompt.size + count:
        positions = np.arange(done, len(tokens), dtype=np.int32)
        step = PackedStep(
            input_ids=np.array(tokens[done:], np.int64),
            positions=positions,
            slot_mapping=positions,
            cumulative_sequence_lengths=np.array([0, positions.size], np.int32),
            block_table=np.arange(-(-len(tokens) // runner.page_tokens), dtype=np.int32)[None],
            logits_indices=np.array([positions.size - 1]),
        )
        done = len(tokens)
        tokens.append(int(runner.run(step)[0].argmax()))
    return tokens[prompt.size :]
