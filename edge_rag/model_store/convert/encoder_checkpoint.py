"""Encoder checkpoints: the usage that sentence-transformers' files declare, applied or rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_rag.errors import ModelFolderInvalid, ModelNotAdded, ModelNotLowerable
from edge_rag.model_store.checkpoint import read_config
from edge_rag.runtime.checkpoint.architectures import Settings, read_settings
from edge_rag.runtime.encoder.bert_graph import MODERN_BERT, BertShape, Pooling
from edge_rag.runtime.encoder.checkpoint_weights import EncoderWeights, bert_tensors, modern_bert_tensors
from edge_rag.runtime.encoder.modern_bert_graph import ModernBertShape
from edge_rag.runtime.model_folder.manifest import ModelRole, plain_relative_path
from edge_rag.runtime.model_folder.strict_json import parse_list

_MAX_INPUT_TOKENS = 8192
_MAX_MODULES_BYTES = 1 << 16
_MAX_PROMPT_CHARACTERS = 500
_MODULES = {
    "sentence_transformers.models.Transformer": "Transformer",
    "sentence_transformers.models.Pooling": "Pooling",
    "sentence_transformers.models.Normalize": "Normalize",
    "sentence_transformers.base.modules.transformer.Transformer": "Transformer",
    "sentence_transformers.sentence_transformer.modules.pooling.Pooling": "Pooling",
    "sentence_transformers.base.modules.normalize.Normalize": "Normalize",
}
# Keys that the library writes into these files, with their meaning; None for keys without one.
_TRANSFORMER_KEYS = frozenset(
    {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"}
)
_MODEL_KEYS = frozenset({"__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"})
_PASSAGE_PROMPTS = ("document", "passage", "corpus")
"""Names of the prompt; sentence-transformers adds an empty ``document`` to folders that use another name."""
_POOLED = re.compile(r"pooling_mode_(\w+?)(?:_tokens?)?")


@dataclass(frozen=True, slots=True)
class EncoderCheckpoint:
    """How an encoder is used.

    Attributes:
        pooling: How token vectors of an embedder are combined into the vector of a text.
    """

    shape: BertShape | ModernBertShape
    pooling: Pooling
    question_prompt: str
    passage_prompt: str


def read_encoder(folder: Path, role: ModelRole) -> EncoderCheckpoint:
    """Reads a checked encoder checkpoint.

    Without sentence-transformers' files an embedder uses mean pooling, as that library does.

    Raises:
        ModelNotAdded: It is used in a way that is not supported; names it.
    """
    config = read_config(folder / "config.json")
    if role is ModelRole.RERANKER and len(_labels(config)) != 1:
        raise ModelNotAdded(f"config.json: has {len(_labels(config))} labels; a reranker gives one score")
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if role is not ModelRole.EMBEDDER and modules and kinds != ["Transformer"]:
        raise ModelNotAdded(f"modules.json: a {role.value} of {', '.join(kinds)} is not supported")
    if role is ModelRole.EMBEDDER and modules and kinds[:2] != ["Transformer", "Pooling"]:
        raise ModelNotAdded(f"modules.json: an embedder of {', '.join(kinds)} is not supported")
    pooling, prompt_counts = Pooling.MEAN, True
    if "Pooling" in kinds:
        pooling, prompt_counts = _pooling(folder / dict(modules)["Pooling"] / "config.json")
    question, passage = _prompts(folder, normalized="Normalize" in kinds) if modules else ("", "")
    if (question or passage) and not prompt_counts:
        raise ModelNotAdded("include_prompt is false beside prompts: leaving prompts out of pooling is not supported")
    return EncoderCheckpoint(_shape(folder, config), pooling, question, passage)


def _shape(folder: Path, config: Mapping[str, object]) -> BertShape | ModernBertShape:
    longest = _longest_input(folder)
    try:
        if config.get("model_type") == MODERN_BERT:
            return ModernBertShape.of(Settings("config.json", config), longest)
        return BertShape.of(config, longest)
    except ModelNotLowerable as error:
        raise ModelNotAdded(str(error)) from error
    except ValueError as error:
        raise ModelNotAdded(f"config.json: {error}") from error


def read_weights(folder: Path, role: ModelRole) -> EncoderWeights:
    config = read_settings(folder / "config.json")
    modern = config.values.get("model_type") == MODERN_BERT
    tensors = modern_bert_tensors(config) if modern else bert_tensors(config, role is ModelRole.RERANKER)
    return EncoderWeights(folder, tensors)


def _labels(config: Mapping[str, object]) -> Mapping[str, object]:
    labels = config.get("id2label", {"0": "", "1": ""})
    if not isinstance(labels, dict):
        raise ModelFolderInvalid("config.json: id2label is not an object")
    return labels


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Returns kind and folder of each module, in order; empty if the checkpoint is plain transformers."""
    path = folder / "modules.json"
    if not path.exists():
        return []
    if path.stat().st_size > _MAX_MODULES_BYTES:
        raise ModelFolderInvalid(f"{path.name}: has more than {_MAX_MODULES_BYTES} bytes")
    try:
        listed = parse_list(path.read_bytes())
    except ValueError as error:
        raise ModelFolderInvalid(f"{path.name}: {error}") from error
    found = []
    for module in listed:
        match module:
            case {"idx": int(), "name": str(), "path": str(path_in_folder), "type": str(kind), **rest} if not any(
                rest.values()
            ):
                found.append((_module(kind, path_in_folder, folder), path_in_folder))
            case _:
                raise ModelFolderInvalid(f"{path.name}: {str(module)[:80]} is not a module that is known")
    return found


def _module(kind: str, path_in_folder: str, folder: Path) -> str:
    if kind not in _MODULES:
        raise ModelNotAdded(f"modules.json: the module {kind[:100]!r} is not supported")
    if path_in_folder:
        try:
            plain_relative_path(path_in_folder)
        except ValueError as error:
            raise ModelFolderInvalid(f"modules.json: {error}") from error
    if _MODULES[kind] == "Transformer" and path_in_folder:
        raise ModelNotAdded(
            f"modules.json: the network lies in {path_in_folder!r}; only one beside modules.json is supported"
        )
    if _MODULES[kind] == "Pooling" and not (folder / path_in_folder / "config.json").is_file():
        raise ModelFolderInvalid(f"modules.json: {path_in_folder!r} holds no configuration")
    return _MODULES[kind]


def _pooling(path: Path) -> tuple[Pooling, bool]:
    """Returns the pooling, and whether the tokens of a prompt take part in it."""
    config = read_config(path)
    mode = config.get("pooling_mode")
    modes = (
        [mode] if mode is not None else [_flag(key) for key, value in config.items() if _flag(key) and value is True]
    )
    known = {pooling.value: pooling for pooling in Pooling}
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in known:
        raise ModelNotAdded(f"{path.parent.name}: pooling by {modes} is not supported; mean and cls are")
    return known[modes[0]], config.get("include_prompt", True) is not False


def _flag(key: str) -> str | None:
    found = _POOLED.fullmatch(key)
    return None if found is None else found[1]


def _prompts(folder: Path, normalized: bool) -> tuple[str, str]:
    path = folder / "config_sentence_transformers.json"
    if not path.exists():
        return "", ""
    config = _known(path, _MODEL_KEYS)
    if config.get("default_prompt_name") is not None:
        raise ModelNotAdded(f"{path.name}: default_prompt_name is not supported")
    similarity = config.get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not (similarity == "dot" and normalized):
        raise ModelNotAdded(f"{path.name}: similarity_fn_name {similarity!r} is not supported; texts compare by cosine")
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str) and len(text) <= _MAX_PROMPT_CHARACTERS for text in prompts.values()
    ):
        raise ModelFolderInvalid(f"{path.name}: prompts are not texts of at most {_MAX_PROMPT_CHARACTERS} characters")
    return prompts.get("query", ""), next((prompts[name] for name in _PASSAGE_PROMPTS if prompts.get(name)), "")


def _longest_input(folder: Path) -> int:
    """Returns the longest input that the checkpoint declares, tokens."""
    longest = [_MAX_INPUT_TOKENS]
    for path, keys in (
        (folder / "sentence_bert_config.json", _TRANSFORMER_KEYS),
        (folder / "tokenizer_config.json", None),
    ):
        if path.exists():
            config = read_config(path) if keys is None else _known(path, keys)
            value = config.get("max_seq_length" if keys else "model_max_length")
            if type(value) is int and value >= 1:
                longest.append(value)
    return min(longest)


def _known(path: Path, keys: frozenset[str]) -> dict[str, object]:
    config = read_config(path)
    for key in sorted(config.keys() - keys):
        if config[key]:
            raise ModelNotAdded(f"{path.name}: {key} is not supported")
    return config
