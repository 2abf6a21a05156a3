"""Runs llama.cpp over windows of tokens and prompts. Runs in an environment of its own, with llama-cpp-python.

    python -m scripts.bench.quality.real_weights.run_llama_cpp MODEL.gguf REQUEST.json FOLDER

The request has ``texts`` and ``prompts``, which llama.cpp encodes itself, and ``windows``, ``window`` and
``answer_tokens``. FOLDER receives ``KIND.npy``, float32 [windows, tokens, vocabulary], and ``answers.json`` with the
token ids of everything encoded and answered.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

_CONTEXT = 1024


def main(arguments: list[str]) -> None:
    """Runs a request."""
    model, request_file, folder = map(Path, arguments)
    request: dict[str, Any] = json.loads(request_file.read_text("utf-8"))
    llama: Any = importlib.import_module("llama_cpp").Llama(
        str(model), n_ctx=_CONTEXT, n_batch=_CONTEXT, logits_all=True, verbose=False
    )

    def encode(text: str) -> list[int]:
        ids: list[int] = llama.tokenize(text.encode(), add_bos=False, special=True)
        return ids

    window, windows = request["window"], request["windows"]
    texts = {kind: encode(text)[: windows * window] for kind, text in request["texts"].items()}
    for kind, ids in texts.items():
        shape = (windows, window, llama.n_vocab())
        logits = np.lib.format.open_memmap(folder / f"{kind}.npy", "w+", np.float32, shape)
        for number in range(windows):
            llama.reset()
            llama.eval(ids[number * window : (number + 1) * window])
            logits[number] = llama.scores[:window]
    prompts = [encode(prompt) for prompt in request["prompts"]]
    answers = [_answer(llama, prompt, request["answer_tokens"]) for prompt in prompts]
    (folder / "answers.json").write_text(json.dumps({"texts": texts, "prompts": prompts, "answers": answers}))


def _answer(llama: Any, prompt: list[int], most: int) -> list[int]:
    """Returns the greedy answer with its end token."""
    llama.reset()
    llama.eval(prompt)
    answer: list[int] = []
    while True:
        answer.append(int(llama.scores[llama.n_tokens - 1].argmax()))
        if len(answer) == most or answer[-1] == llama.token_eos():
            return answer
        llama.eval(answer[-1:])


if __name__ == "__main__":
    main(sys.argv[1:])
