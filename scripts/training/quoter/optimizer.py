"""Muon for the products' matrices, AdamW for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from scripts.training.quoter.decoder import Decoder


class Optimizer:
    """Both optimizers as one.

    Args:
        model: Its matrices but the embeddings go to Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).
        extra: Trained along, by AdamW.
        matrix_rate: Muon's learning rate at full scale.
        other_rate: AdamW's.
    """

    def __init__(self, model: Decoder, extra: nn.Module, matrix_rate: float, other_rate: float) -> None:
        matrices = [p for p in model.layers.parameters() if p.ndim == 2]
        chosen = {id(p) for p in matrices}
        self._others = [p for p in model.parameters() if id(p) not in chosen]
        self._rates = (matrix_rate, other_rate)
        self._parts = (
            torch.optim.Muon(matrices, lr=matrix_rate, momentum=0.95, nesterov=True, weight_decay=0.05),
            torch.optim.AdamW(
                [*self._others, *extra.parameters()], lr=other_rate, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0
            ),
        )

    def step(self, scale: float) -> None:
        """Follows the gradients at a share of the full learning rates, and clears them."""
        torch.nn.utils.clip_grad_norm_(self._others, 1.0)
        for part, rate in zip(self._parts, self._rates, strict=True):
            for group in part.param_groups:
                group["lr"] = rate * scale
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Returns what ``restore`` takes."""
        return {"matrices": self._parts[0].state_dict(), "others": self._parts[1].state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""
        self._parts[0].load_state_dict(state["matrices"])
        self._parts[1].load_state_dict(state["others"])
