"""Hugging Face folders: which files are copied, and their legal contents. Code of a folder is never copied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_rag.errors import ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.directory import matching
from edge_rag.runtime.checkpoint.safetensors import INDEX_FILE, LARGEST_HEADER, SHARD, read_header
from edge_rag.runtime.model_folder.manifest import ModelRole
from edge_rag.runtime.model_folder.strict_json import parse_object

_COPIED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-?????-of-?????.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "README.md",
    "LICENSE*",
)

_GENERATORS = {
    "LlamaForCausalLM": "Llama",
    "MistralForCausalLM": "Mistral",
    "Qwen2ForCausalLM": "Qwen2.5",
    "Qwen3ForCausalLM": "Qwen3",
    "Phi3ForCausalLM": "Phi-3",
    "SmolLM3ForCausalLM": "SmolLM3",
    "GemmaForCausalLM": "Gemma",
    "Gemma3ForCausalLM": "Gemma 3",
    "GraniteForCausalLM": "Granite",
}
_EMBEDDERS = {
    "BertModel": "BERT",
    "RobertaModel": "RoBERTa",
    "XLMRobertaModel": "XLM-RoBERTa",
    "ModernBertModel": "ModernBERT",
}
_RERANKERS = {
    "BertForSequenceClassification": "BERT",
    "RobertaForSequenceClassification": "RoBERTa",
    "XLMRobertaForSequenceClassification": "XLM-RoBERTa",
}
ARCHITECTURES: Mapping[str, tuple[ModelRole, str]] = {
    **{name: (ModelRole.GENERATOR, family) for name, family in _GENERATORS.items()},
    **{name: (ModelRole.EMBEDDER, family) for name, family in _EMBEDDERS.items()},
    **{name: (ModelRole.RERANKER, family) for name, family in _RERANKERS.items()},
}
"""Classes of transformers that can be converted, with role and name of their family."""

# Keys that name Python code of the folder, or kernels that transformers would fetch.
_CODE_KEYS = ("auto_map", "custom_pipelines", "attn_implementation", "_attn_implementation")
_PART = re.compile(r"\d_(Pooling|Normalize)/config\.json")
_LARGEST_CONFIG = 1 << 20
_LICENCE = re.compile(r"^license:\s*[\"']?([A-Za-z0-9.+-]{1,60})[\"']?\s*$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The declarations of a Hugging Face folder."""

    role: ModelRole
    architecture: str
    family: str
    licence: str


def wanted_files(names: Iterable[str]) -> list[str]:
    """Returns the names of files to copy or fetch. All others, such as pickled weights and Python code, are left
    out.
    """
    present = list(names)
    return [*matching(present, _COPIED), *(name for name in present if _PART.fullmatch(name))]


def check_checkpoint(folder: Path) -> Checkpoint:
    """Checks a private copy of a Hugging Face folder, and removes keys that name code from its configuration.

    Args:
        folder: Has only files of ``wanted_files``; may be changed.

    Raises:
        ModelNotAdded: Its architecture cannot be converted, or its weights are not safetensors.
    """
    config = read_config(folder / "config.json")
    for name in ("tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
        if (folder / name).exists():
            _without_code(folder / name)
    # The classes of ARCHITECTURES are part of transformers; what `auto_map` names instead was not copied.
    _without_code(folder / "config.json")
    architectures = config.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and len(architectures) == 1 else None
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelNotAdded(
            f"{folder.name}: the architecture {architecture!r} cannot be converted; known ones are {known}"
        )
    if config.get("quantization_config") is not None:
        raise ModelNotAdded(f"{folder.name}: the weights are quantized already; add the model they were made from")
    _check_weights(folder)
    if not (folder / "tokenizer.json").exists():
        raise ModelNotAdded(f"{folder.name}: there is no tokenizer.json, which the daemon's tokenizer is made from")
    role, family = ARCHITECTURES[architecture]
    return Checkpoint(role, architecture, family, licence_of(folder))


def licence_of(folder: Path) -> str:
    """Returns the licence in a model card's front matter, or ``NOASSERTION``."""
    try:
        with (folder / "README.md").open("rb") as file:
            card = file.read(_LARGEST_CONFIG).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return "NOASSERTION"
    front = _FRONT_MATTER.match(card)
    found = _LICENCE.search(front[1]) if front else None
    return found[1] if found else "NOASSERTION"


def _check_weights(folder: Path) -> None:
    names = [path.name for path in folder.iterdir()]
    shards = matching(names, ("model*.safetensors",))
    index = folder / INDEX_FILE
    if index.exists():
        mapped = _read(index, LARGEST_HEADER).get("weight_map")
        files = set(mapped.values()) if isinstance(mapped, dict) and mapped else {None}
        for file in sorted(map(str, files)):
            if not SHARD.fullmatch(file):
                raise ModelFolderInvalid(f"{folder.name}: {index.name} names {file!r}, which is not a file of weights")
            if file not in shards:
                raise ModelFolderInvalid(f"{folder.name}: {file} is missing, {index.name} names it")
    elif "model.safetensors" not in shards:
        raise ModelNotAdded(
            f"{folder.name}: there is no model.safetensors; pickled weights are code and are not accepted"
        )
    for shard in shards:
        read_header(folder / shard)


def _without_code(path: Path) -> None:
    document = read_config(path)
    if any(key in document for key in _CODE_KEYS):
        path.write_text(json.dumps({key: value for key, value in document.items() if key not in _CODE_KEYS}), "utf-8")


def read_config(path: Path) -> dict[str, object]:
    return _read(path, _LARGEST_CONFIG)


def _read(path: Path, largest: int) -> dict[str, object]:
    try:
        if path.stat().st_size > largest:
            raise ModelFolderInvalid(f"{path.name}: has more than {largest} bytes")
        return parse_object(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelFolderInvalid(f"{path.name}: is missing; this is not a Hugging Face folder") from error
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{path.name}: cannot be read: {error}") from error
