"""What is minimized: the answer's tokens, the choice among sentences, and two auxiliary losses for faster learning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from scripts.training.quoter.batch import Batch
from scripts.training.quoter.decoder import Decoder, Outputs, exchange_mask

_CHOICE, _LOOK, _OPENING = 1.0, 0.3, 0.05


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over a batch.

    Attributes:
        total: What is minimized.
        answer: Of the answers' tokens, weighted, nats.
        choice: Of the choices among sentences, nats.
        chosen: Share of the choices that are right.
        looked: Attention the looking heads give to the right sentence at a question's end.
    """

    total: Tensor
    answer: Tensor
    choice: Tensor
    chosen: Tensor
    looked: Tensor


class Openings(nn.Module):  # type: ignore[misc]
    """From a token within a sentence to how that sentence began; of use in training only."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(hidden, hidden, bias=False)
        self.second = nn.Linear(hidden, hidden, bias=False)
        for product in (self.first, self.second):
            nn.init.normal_(product.weight, std=hidden**-0.5)


def run(model: Decoder, batch: Batch, prefix: int, device: torch.device) -> Outputs:
    """Runs a model over a batch, products in bfloat16."""
    mask = exchange_mask(_on(batch.prefixes, device), _on(batch.segments, device), prefix, torch.bfloat16)
    with torch.autocast(device.type, torch.bfloat16):
        outputs: Outputs = model(_on(batch.token_ids, device), _on(batch.positions, device), mask, prefix)
    return outputs


def losses(model: Decoder, openings: Openings, outputs: Outputs, batch: Batch, device: torch.device) -> Losses:
    """Computes a batch's losses."""
    targets = _on(batch.targets, device)
    logits = model.logits(outputs.stream[targets[:, 0], targets[:, 1]], torch.bfloat16)
    weights = _on(batch.weights, device)
    answer = (functional.cross_entropy(logits, targets[:, 2], reduction="none") * weights).sum() / weights.sum()
    offered = choice_logits(logits, batch, device)
    choice = functional.cross_entropy(offered, torch.zeros(len(offered), dtype=torch.long, device=device))
    look, looked = _look(outputs, batch, device)
    total = answer + _CHOICE * choice + _LOOK * look + _OPENING * _opening(model, openings, outputs, batch, device)
    return Losses(total, answer, choice, (offered.argmax(1) == 0).float().mean(), looked)


def choice_logits(logits: Tensor, batch: Batch, device: torch.device) -> Tensor:
    """Returns the logits of the tokens allowed at each branch, [branches, widest], the right one first."""
    allowed = _on(batch.allowed, device)
    chosen = logits[_on(batch.choices, device)].gather(1, allowed.clamp(min=0))
    return chosen.masked_fill(allowed < 0, -1e9)


def _look(outputs: Outputs, batch: Batch, device: torch.device) -> tuple[Tensor, Tensor]:
    """The looking layer's heads are to attend to the answer's sentence while the question is read."""
    looks, weights = _on(batch.looks, device), _on(batch.look_weights, device)
    scale = outputs.keys.shape[-1] ** -0.5
    scores = torch.matmul(outputs.queries, outputs.keys.transpose(-1, -2)).float() * scale + outputs.mask.float()
    scores = scores[looks[:, 0], :, looks[:, 1]]
    columns = torch.arange(scores.shape[-1], device=device)
    within = (columns >= looks[:, 2:3]) & (columns < looks[:, 3:4])
    inside = torch.logsumexp(scores.masked_fill(~within[:, None], -1e9), -1) - torch.logsumexp(scores, -1)
    at_end = inside[weights == 1].exp().mean()
    return -(inside.mean(1) * weights).sum() / weights.sum(), at_end


def _opening(model: Decoder, openings: Openings, outputs: Outputs, batch: Batch, device: torch.device) -> Tensor:
    """Every token is to know how its sentence began, since that is what has to be said to quote it."""
    known = _on(batch.openings, device)
    middle = outputs.middle[known[:, 0], known[:, 1]]
    states = functional.rms_norm(middle, middle.shape[-1:])
    lost = [
        functional.cross_entropy(model.logits(product(states), torch.bfloat16), known[:, 2 + place])
        for place, product in enumerate((openings.first, openings.second))
    ]
    return lost[0] + lost[1]


def _on(array: object, device: torch.device) -> Tensor:
    return torch.as_tensor(array, device=device)
