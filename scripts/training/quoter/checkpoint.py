"""A run's state on disk: what an interrupted run goes on from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scripts.training.quoter.decoder import Decoder
from scripts.training.quoter.losses import Openings
from scripts.training.quoter.optimizer import Optimizer
from scripts.training.quoter.schedule import plateau

STATE_FILE = "state.pt"


class DifferentRun(Exception):
    """What is on disk belongs to a run with other settings or other text; the message names what differs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        steps: Done.
        tokens: Done.
        seconds: Spent on them, all sittings together.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Checkpoint:
    """The state of one run in a folder.

    Args:
        folder: Made if it does not exist.
        identity: What must be the same for a run to go on, by name.
        tokens: How many the run is to train on; another number is the same run until the shorter one cools down.
        model: Its weights are saved and restored.
        openings: Likewise.
        optimizer: Likewise.
    """

    def __init__(
        self,
        folder: Path,
        identity: dict[str, Any],
        tokens: int,
        model: Decoder,
        openings: Openings,
        optimizer: Optimizer,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / STATE_FILE
        self._identity = identity
        self._tokens = tokens
        self._model = model
        self._openings = openings
        self._optimizer = optimizer

    def save(self, progress: Progress) -> None:
        """Replaces what was saved before; a crash leaves the old or the new, never a part."""
        state = {
            "identity": self._identity,
            "tokens": self._tokens,
            "steps": progress.steps,
            "done": progress.tokens,
            "seconds": progress.seconds,
            "model": self._model.state_dict(),
            "openings": self._openings.state_dict(),
            "optimizer": self._optimizer.state(),
        }
        aside = self._path.with_suffix(".new")
        torch.save(state, aside)
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(self._path)

    def restore(self, device: torch.device) -> Progress:
        """Goes on from what was saved.

        Raises:
            DifferentRun: It was saved by a run with another identity, or with another length that is too near its end.
        """
        state = torch.load(self._path, map_location=device, weights_only=True)
        saved = state["identity"]
        differing = [name for name in self._identity if saved.get(name) != self._identity[name]]
        if differing:
            said = ", ".join(f"{name} was {saved.get(name)} and is {self._identity[name]}" for name in differing)
            raise DifferentRun(f"{self._path} belongs to another run: {said}; start over without --resume")
        progress = Progress(state["steps"], state["done"], state["seconds"])
        shared = plateau(min(state["tokens"], self._tokens))
        if state["tokens"] != self._tokens and progress.tokens > shared:
            raise DifferentRun(
                f"{self._path} was to train on {state['tokens']} tokens and is at {progress.tokens}; a run of "
                f"{self._tokens} is the same run only up to {shared}"
            )
        self._model.load_state_dict(state["model"])
        self._openings.load_state_dict(state["openings"])
        self._optimizer.restore(state["optimizer"])
        return progress
