"""Checkpoints of encoders: what sentence-transformers' files say about how one is used, honoured or refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_rag.errors import ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.checkpoint import read_config
from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling
from edge_rag.runtime.model_folder.manifest import ModelRole, plain_relative_path
from edge_rag.runtime.model_folder.strict_json import parse_list

_LONGEST_INPUT = 8192
_LARGEST_MODULES = 1 << 16
_LONGEST_PROMPT = 500
_MODULES = {
    "sentence_transformers.models.Transformer": "Transformer",
    "sentence_transformers.models.Pooling": "Pooling",
    "sentence_transformers.models.Normalize": "Normalize",
    "sentence_transformers.base.modules.transformer.Transformer": "Transformer",
    "sentence_transformers.sentence_transformer.modules.pooling.Pooling": "Pooling",
    "sentence_transformers.base.modules.normalize.Normalize": "Normalize",
}
# What the library itself wrote into these files and what it means; what is empty means nothing.
_TRANSFORMER_KEYS = frozenset(
    {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"}
)
_MODEL_KEYS = frozenset({"__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"})
_PASSAGE_PROMPTS = ("document", "passage", "corpus")
_POOLED = re.compile(r"pooling_mode_(\w+?)(?:_tokens?)?")


@dataclass(frozen=True, slots=True)
class EncoderCheckpoint:
    """How an encoder is used.

    Attributes:
        shape: Sizes of the network; its ``max_tokens`` is the most the checkpoint was made for.
        pooling: How a text's vector comes of its tokens'; of an embedder.
        question_prompt: Goes before a question.
        passage_prompt: Goes before a passage.
    """

    shape: BertShape
    pooling: Pooling
    question_prompt: str
    passage_prompt: str


def read_encoder(folder: Path, role: ModelRole) -> EncoderCheckpoint:
    """Reads a checked checkpoint of an encoder.

    Without sentence-transformers' files an embedder pools as that library would, by the mean.

    Args:
        folder: The checkpoint.
        role: What it is for: embedder or reranker.

    Raises:
        ModelFolderInvalid: A file is damaged or says something that is not allowed.
        ModelNotAdded: It is used in a way that is not carried over; names it.
    """
    config = read_config(folder / "config.json")
    if role is ModelRole.RERANKER and len(_labels(config)) != 1:
        raise ModelNotAdded(f"config.json: has {len(_labels(config))} labels; a reranker gives one score")
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if role is ModelRole.RERANKER and modules and kinds != ["Transformer"]:
        raise ModelNotAdded(f"modules.json: a reranker of {', '.join(kinds)} is not carried over")
    if role is ModelRole.EMBEDDER and modules and kinds[:2] != ["Transformer", "Pooling"]:
        raise ModelNotAdded(f"modules.json: an embedder of {', '.join(kinds)} is not carried over")
    pooling, prompt_counts = Pooling.MEAN, True
    if "Pooling" in kinds:
        pooling, prompt_counts = _pooling(folder / dict(modules)["Pooling"] / "config.json")
    question, passage = _prompts(folder, normalized="Normalize" in kinds) if modules else ("", "")
    if (question or passage) and not prompt_counts:
        raise ModelNotAdded(
            "include_prompt is false beside prompts: leaving prompts out of pooling is not carried over"
        )
    try:
        return EncoderCheckpoint(BertShape.of(config, _longest_input(folder)), pooling, question, passage)
    except ValueError as error:
        raise ModelNotAdded(f"config.json: {error}") from error


def _labels(config: Mapping[str, object]) -> Mapping[str, object]:
    labels = config.get("id2label", {"0": "", "1": ""})
    if not isinstance(labels, dict):
        raise ModelFolderInvalid("config.json: id2label is not an object")
    return labels


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Returns kind and folder of each module, in order; none where the checkpoint is plain transformers."""
    path = folder / "modules.json"
    if not path.exists():
        return []
    if path.stat().st_size > _LARGEST_MODULES:
        raise ModelFolderInvalid(f"{path.name}: has more than {_LARGEST_MODULES} bytes")
    try:
        listed = parse_list(path.read_bytes())
    except ValueError as error:
        raise ModelFolderInvalid(f"{path.name}: {error}") from error
    found = []
    for module in listed:
        match module:
            case {"idx": int(), "name": str(), "path": str(place), "type": str(kind), **rest} if not any(rest.values()):
                found.append((_module(kind, place, folder), place))
            case _:
                raise ModelFolderInvalid(f"{path.name}: {str(module)[:80]} is not a module that is known")
    return found


def _module(kind: str, place: str, folder: Path) -> str:
    if kind not in _MODULES:
        raise ModelNotAdded(f"modules.json: the module {kind[:100]!r} is not carried over")
    if place:
        try:
            plain_relative_path(place)
        except ValueError as error:
            raise ModelFolderInvalid(f"modules.json: {error}") from error
    if _MODULES[kind] == "Transformer" and place:
        raise ModelNotAdded(
            f"modules.json: the network lies in {place!r}; only one beside modules.json is carried over"
        )
    if _MODULES[kind] == "Pooling" and not (folder / place / "config.json").is_file():
        raise ModelFolderInvalid(f"modules.json: {place!r} holds no configuration")
    return _MODULES[kind]


def _pooling(path: Path) -> tuple[Pooling, bool]:
    """Returns the pooling, and whether a prompt's tokens take part in it."""
    config = read_config(path)
    mode = config.get("pooling_mode")
    modes = (
        [mode] if mode is not None else [_flag(key) for key, value in config.items() if _flag(key) and value is True]
    )
    known = {pooling.value: pooling for pooling in Pooling}
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in known:
        raise ModelNotAdded(f"{path.parent.name}: pooling by {modes} is not carried over; mean and cls are")
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
        raise ModelNotAdded(f"{path.name}: default_prompt_name is not carried over")
    similarity = config.get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not (similarity == "dot" and normalized):
        raise ModelNotAdded(
            f"{path.name}: similarity_fn_name {similarity!r} is not carried over; texts compare by cosine"
        )
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str) and len(text) <= _LONGEST_PROMPT for text in prompts.values()
    ):
        raise ModelFolderInvalid(f"{path.name}: prompts are not texts of at most {_LONGEST_PROMPT} characters")
    return prompts.get("query", ""), next((prompts[name] for name in _PASSAGE_PROMPTS if name in prompts), "")


def _longest_input(folder: Path) -> int:
    """Returns the most tokens that the checkpoint says it reads."""
    longest = [_LONGEST_INPUT]
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
            raise ModelNotAdded(f"{path.name}: {key} is not carried over")
    return config
