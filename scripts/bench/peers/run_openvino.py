"""Measures OpenVINO GenAI's continuous batching pipeline, u8 keys and values. Runs in OpenVINO's own environment.

The pipeline gives no logits out. They are taken from the graph that it makes of a GGUF file, on the same plugin.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.bench.peers.load import Load, program_arguments, report

_BLOCK_TOKENS = 32
"""Tokens in a block of the CPU plugin's cache."""


class OpenVinoProgram:
    """A pipeline with room for the load's sequences and no prefix cache."""

    def __init__(self, model: Path, load: Load) -> None:
        openvino = importlib.import_module("openvino")
        genai = importlib.import_module("openvino_genai")
        self._model, self._graph = model, None
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = load.sequences * (-(-load.room // _BLOCK_TOKENS) + 1)
        scheduler.max_num_batched_tokens = load.step_tokens
        scheduler.max_num_seqs = load.sequences
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = False
        self._properties = {"INFERENCE_NUM_THREADS": load.threads, "KV_CACHE_PRECISION": "u8"}
        self._pipeline: Any = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", self._properties)
        self._make_generation = genai.GenerationConfig
        self._make_tensor = openvino.Tensor
        self._lag = load.lag
        self._numbers = count()

    def prefill(self, prompt: NDArray[np.int64]) -> float:
        started = time.perf_counter()
        handles = self._submit(prompt[None], 1)
        while not any(handle.can_read() for handle in handles):
            self._pipeline.step()
        seconds = time.perf_counter() - started
        self._finish()
        return seconds

    def decode(self, prompts: NDArray[np.int64], steps: int) -> list[float]:
        """Times the steps in which every sequence, past its first token, gained one."""
        handles = self._submit(prompts, steps + self._lag)
        said = np.zeros(len(prompts), np.int64)
        seconds = []
        while self._pipeline.has_non_finished_requests():
            started = time.perf_counter()
            self._pipeline.step()
            ended = time.perf_counter()
            gained = np.array([self._read(handle) for handle in handles])
            if (gained == 1).all() and (said > 0).all():
                seconds.append(ended - started)
            said += gained
        if len(seconds) < steps:
            raise RuntimeError(f"only {len(seconds)} of {steps} steps decoded all {len(prompts)} sequences")
        return seconds[:steps]

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        """Computes a text by the graph that the pipeline saves of a GGUF file."""
        request = self._graph or self._open_graph()
        request.reset_state()
        order = np.arange(len(text), dtype=np.int64)[None]
        inputs = {"input_ids": text[None], "attention_mask": np.ones_like(order), "position_ids": order}
        found = request.infer(inputs | {"beam_idx": np.zeros(1, np.int32)})
        return np.array(found["logits"][0], np.float32)

    def _open_graph(self) -> Any:
        openvino = importlib.import_module("openvino")
        genai = importlib.import_module("openvino_genai")
        with tempfile.TemporaryDirectory() as folder:
            link = Path(folder) / self._model.name
            link.symlink_to(self._model.resolve())
            genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
            compiled = openvino.Core().compile_model(str(Path(folder) / "openvino_model.xml"), "CPU", self._properties)
        self._graph = compiled.create_infer_request()
        return self._graph

    def _submit(self, prompts: NDArray[np.int64], tokens: int) -> list[Any]:
        generation = self._make_generation()
        generation.max_new_tokens = tokens
        generation.ignore_eos = True
        generation.do_sample = False
        generation.apply_chat_template = False
        add = self._pipeline.add_request
        return [add(next(self._numbers), self._make_tensor(prompt[None]), generation) for prompt in prompts]

    def _finish(self) -> None:
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()

    @staticmethod
    def _read(handle: Any) -> int:
        return sum(len(output.generated_ids) for output in handle.read().values()) if handle.can_read() else 0


def main() -> None:
    arguments = program_arguments(__doc__).parse_args()
    report(arguments, lambda load: OpenVinoProgram(arguments.model, load))


if __name__ == "__main__":
    main()
