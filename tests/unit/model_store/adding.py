"""What tests of adding models share."""

from dataclasses import replace

import numpy as np

from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import NoProgress
from tests.synthetic.tiny_gguf import TinyModel


def left_in(store: StoreDirectory) -> list[str]:
    return sorted(path.name for path in store.path.iterdir())


def calm(model: TinyModel) -> TinyModel:
    """Makes choices clear, so that a model passes the gate in few bits."""
    return replace(model, tensors={**model.tensors, "output.weight": 4 * model.tensors["output.weight"]})


def hard(model: TinyModel) -> TinyModel:
    """Makes some weights large, so that 4 bits lose too much."""
    random = np.random.default_rng(1)
    tensors = {
        name: np.where(random.random(values.shape) < 0.002, 60 * values, values).astype(np.float32)
        if "blk" in name and values.ndim == 2
        else values
        for name, values in model.tensors.items()
    }
    return replace(model, tensors=tensors)


class Interrupted(NoProgress):
    """Ctrl-C when a step or a line begins so; ``inside`` is any line."""

    def __init__(self, at: str) -> None:
        self._at = at

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        if what.startswith(self._at):
            raise KeyboardInterrupt

    def detail(self, line: str) -> None:
        if self._at == "inside" or line.startswith(self._at):
            raise KeyboardInterrupt
