"""The texts and prompts on which SmolLM2-135M-Instruct is compared with llama.cpp and with its weights in float32."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "smollm2-135m"
FIGURES: Final = FIXTURE / "figures.json"
MODEL: Final = "smollm2-135m"
KINDS: Final = ("manual", "documentation", "code")
WINDOW: Final = 512
WINDOWS: Final = 4
ANSWER_TOKENS: Final = 40
_PROMPTS: Final = 100
_SYSTEM: Final = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
_PARAGRAPH: Final = range(120, 601)
"""Characters of a paragraph that a prompt asks about."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run.

    Attributes:
        windows: By kind of text, int64 [windows, tokens].
        prompts: Token ids of each prompt.
    """

    windows: Mapping[str, NDArray[np.int64]]
    prompts: tuple[NDArray[np.int64], ...]

    @property
    def sha256(self) -> str:
        """Hash of all token ids."""
        digest = hashlib.sha256()
        for tokens in (*self.windows.values(), *self.prompts):
            digest.update(np.ascontiguousarray(tokens, "<i8").tobytes())
        return digest.hexdigest()


def workload(folder: Path) -> Workload:
    """Cuts the texts into windows and encodes the prompts with the tokenizer of a model folder."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    windows = {
        kind: np.array(encode(tokenizer, read_text(kind))[: WINDOWS * WINDOW], np.int64).reshape(WINDOWS, WINDOW)
        for kind in KINDS
    }
    return Workload(windows, tuple(np.array(encode(tokenizer, prompt), np.int64) for prompt in prompt_texts()))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def read_text(kind: str) -> str:
    return (FIXTURE / f"{kind}.txt").read_text("utf-8")


def read_figures() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(FIGURES.read_text("utf-8"))
    return figures


def losses(logits: NDArray[np.float32], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the negative log-likelihood of each token after the first, nats, float64 [n - 1].

    Args:
        logits: float32 [n, vocabulary], after each token.
        tokens: int64 [n].
    """
    found = logits[:-1].astype(np.float64)
    top = found.max(axis=1)
    chosen = found[np.arange(len(found)), tokens[1:]]
    result: NDArray[np.float64] = np.log(np.exp(found - top[:, None]).sum(axis=1)) + top - chosen
    return result


def prompt_texts() -> list[str]:
    """Returns the prompts as the model's chat template lays them out.

    They are questions about the samples, without their documents, and tasks on paragraphs of the texts.
    """
    texts: list[str] = json.loads((FIXTURE / "questions.json").read_text("utf-8"))
    paragraphs = [[part for part in re.split(r"\n\s*\n", read_text(kind)) if len(part) in _PARAGRAPH] for kind in KINDS]
    for number in range(max(map(len, paragraphs))):
        for kind, parts in zip(KINDS, paragraphs, strict=True):
            if number < len(parts) and len(texts) < _PROMPTS:
                task = "Explain what this code does" if kind == "code" else "Say in one sentence what this is about"
                texts.append(f"{task}:\n\n{parts[number]}")
    return [f"{_SYSTEM}<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in texts]
