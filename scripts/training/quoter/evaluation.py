"""How often a model chooses the right sentence on text it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from scripts.training.quoter.batch import Batch
from scripts.training.quoter.decoder import Decoder
from scripts.training.quoter.losses import choice_logits, run


@dataclass(frozen=True, slots=True)
class Choices:
    """What was measured, without any evidence from retrieval.

    Attributes:
        questions: How many there were to choose a sentence for.
        right: Share for which greedy decoding held to the passages' sentences says the right one.
        sentences: Share of right choices at single places where sentences part.
    """

    questions: int
    right: float
    sentences: float


@torch.no_grad()  # type: ignore[untyped-decorator]
def choices(model: Decoder, batches: Iterable[tuple[Batch, int]], device: torch.device) -> Choices:
    """Measures.

    Greedy decoding under the constraint says the right sentence exactly if the right token is the most likely of those
    allowed at each place along that sentence where others part from it; so one run over the answer tells.

    Args:
        model: Looked at as it is.
        batches: With the columns that their prefixes take.
        device: Where the model is.
    """
    questions = right = places = right_places = 0
    for batch, prefix in batches:
        if not batch.choices.size:
            continue
        outputs = run(model, batch, prefix, device)
        targets = torch.as_tensor(batch.targets, device=device)
        logits = model.logits(outputs.stream[targets[:, 0], targets[:, 1]], torch.bfloat16)
        chosen = (choice_logits(logits, batch, device).argmax(1) == 0).cpu().numpy()
        wrong = set(batch.exchange_of[~chosen].tolist())
        asked = set(batch.exchange_of.tolist())
        questions += len(asked)
        right += len(asked - wrong)
        places += len(chosen)
        right_places += int(chosen.sum())
    return Choices(questions, right / max(1, questions), right_places / max(1, places))
