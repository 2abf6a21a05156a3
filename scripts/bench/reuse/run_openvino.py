"""OpenVINO GenAI with prefix caching under questions over passages. Runs in an environment of its own."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.bench.harness.workload import Trace
from scripts.bench.reuse.serving import program

_BLOCK_TOKENS = 32
_STEP_TOKENS = 512


class OpenVinoServer:
    """A pipeline with as much cache as the others, u8 keys and values."""

    def __init__(self, arguments: argparse.Namespace, trace: Trace) -> None:
        openvino = importlib.import_module("openvino")
        genai = importlib.import_module("openvino_genai")
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = (arguments.cache_mib << 20) // _block_bytes(arguments.model)
        scheduler.max_num_batched_tokens = _STEP_TOKENS
        scheduler.max_num_seqs = arguments.slots
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": arguments.threads, "KV_CACHE_PRECISION": "u8"}
        self._pipeline: Any = genai.ContinuousBatchingPipeline(str(arguments.model), scheduler, "CPU", properties)
        self._make_generation = genai.GenerationConfig
        self._make_tensor = openvino.Tensor
        self._handles: dict[int, tuple[Any, int]] = {}

    def submit(self, number: int, prompt: NDArray[np.int64], answer_tokens: int) -> None:
        """Takes a request."""
        generation = self._make_generation()
        generation.max_new_tokens = answer_tokens
        generation.ignore_eos = True
        generation.do_sample = False
        generation.apply_chat_template = False
        handle = self._pipeline.add_request(number, self._make_tensor(prompt[None]), generation)
        self._handles[number] = (handle, answer_tokens)

    def turn(self, wait_s: float) -> list[tuple[int, bool]]:
        """Runs a step."""
        if not self._handles:
            time.sleep(wait_s)
            return []
        self._pipeline.step()
        said = []
        for number, (handle, wanted) in list(self._handles.items()):
            if handle.can_read():
                left = wanted - sum(len(output.generated_ids) for output in handle.read().values())
                self._handles[number] = (handle, left)
                if left <= 0:
                    del self._handles[number]
                said.append((number, left <= 0))
        return said


def _block_bytes(model: Path) -> int:
    """Returns the bytes of a block of u8 keys and values with a scale and a zero point a token and head."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    head = config["hidden_size"] // config["num_attention_heads"]
    return int(2 * config["num_hidden_layers"] * config["num_key_value_heads"] * _BLOCK_TOKENS * (head + 8))


if __name__ == "__main__":
    program(__doc__, OpenVinoServer)
