"""What training runs have in common: the optimizer, a state that a run goes on from, and how Ctrl-C stops it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console

from scripts.training.pair_model import PairModel

_STATE: Final = "state.pt"


class Optimization:
    """The optimizer of a model, and a state from which a run that was stopped goes on.

    Args:
        model: What is trained.
        rate_at: The learning rate of a step, 0-based.
        identity: What decides the result besides the learning rate; a state of another identity is refused.
        folder: Where the state is kept.
    """

    def __init__(self, model: PairModel, rate_at: Callable[[int], float], identity: str, folder: Path) -> None:
        self._model = model
        self._rate_at = rate_at
        self._identity = identity
        self._file = folder / _STATE
        self._step = 0
        parameters = model.trained()
        decayed = [tensor for tensor in parameters.values() if tensor.ndim > 1]
        others = [tensor for tensor in parameters.values() if tensor.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self._optimizer: Any = torch.optim.AdamW(groups, lr=rate_at(0))
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def step(self) -> int:
        """Updates done."""
        return self._step

    def update(self, loss: Any) -> None:
        """Takes a step down a loss."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate_at(self._step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.trained().values(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._step += 1

    def resume(self) -> None:
        """Goes on from the saved state, if there is one.

        Raises:
            SystemExit: It was made with other options, or with another learning rate.
        """
        if not self._file.is_file():
            return
        state = torch.load(self._file, weights_only=True)
        if state["identity"] != self._identity or state["rate"] != self._rate_at(max(0, state["step"] - 1)):
            raise SystemExit(f"{self._file} is of a run with other options: give another --output, or remove it")
        self._model.load(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self._step = state["step"]

    def save(self) -> None:
        """Writes the state aside, then in place."""
        state = {
            "identity": self._identity,
            "step": self._step,
            "rate": self._rate_at(max(0, self._step - 1)),
            "model": self._model.trained(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        aside = self._file.with_suffix(".new")
        torch.save(state, aside)
        aside.replace(self._file)


@contextmanager
def stop_request(console: Console) -> Iterator[threading.Event]:
    """Yields what the first Ctrl-C sets, so that no step is left half done; the second one ends the run at once."""
    stopping = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopping.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print("stopping after this step")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGINT, before)
