"""Embedders and cross-encoders: from a checkpoint to a model folder over texts end to end."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.checkpoint import Checkpoint
from edge_rag.model_store.convert.encoder_checkpoint import read_encoder
from edge_rag.model_store.convert.genai import BLOCK, ModelPrecision
from edge_rag.model_store.convert.staging import StagingDir, check_folder
from edge_rag.model_store.directory import origin_of
from edge_rag.model_store.request import AddRequest
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest

_PREPARATION = "edge_rag.model_store.convert.prepare_encoder"


def make_encoder(wish: AddRequest, checkpoint: Checkpoint, commit: str | None, shop: StagingDir) -> None:
    """Makes the model folder and compares it with the original in fp32.

    Raises:
        ModelFolderInvalid: The checkpoint holds something that is not allowed.
        ModelNotAdded: It cannot be carried over, or computes something else than the original.
    """
    encoder = read_encoder(shop.source, checkpoint.role)
    precision = wish.precision or ModelPrecision.INT8
    origin = origin_of(wish.source, shop.source, commit)
    reference = shop.scratch / "reference.npz"
    role = checkpoint.role.value
    shop.model.mkdir()
    shop.progress.begin("running the original")
    shop.step("reference", shop.source, role, reference, program=_PREPARATION)
    shop.progress.begin(f"converting to {precision.value}")
    shop.step("build", shop.source, role, precision.value, shop.model / "model.onnx", program=_PREPARATION)
    for kept in (shop.source / "tokenizer.json", *shop.source.glob("LICENSE*")):
        shutil.copyfile(kept, shop.model / kept.name)
    check_folder(shop.model)
    block = "" if precision is ModelPrecision.FP32 else f", block {BLOCK}"
    parameters: dict[str, JsonValue] = {
        "max_tokens": encoder.shape.max_tokens,
        "weights": precision.value + block,
        "family": checkpoint.family,
        "architecture": checkpoint.architecture,
    }
    if commit is not None:
        parameters["revision"] = commit
    if checkpoint.role is ModelRole.EMBEDDER:
        parameters |= {"dimension": encoder.shape.hidden, "pooling": encoder.pooling.value}
        prompts = {"question_prompt": encoder.question_prompt, "passage_prompt": encoder.passage_prompt}
        parameters |= {name: prompt for name, prompt in prompts.items() if prompt}
    licence = wish.licence or checkpoint.licence
    _describe(wish, checkpoint.role, licence, origin, shop.model, parameters)
    shop.progress.begin("comparing it with the original")
    found = shop.step("compare", shop.model, reference, program=_PREPARATION)
    resident = found.pop("resident_bytes")
    if not found["good"]:
        better = "; a higher --precision may do" if precision is not ModelPrecision.FP32 else ""
        raise ModelNotAdded(
            f"{wish.source}: in {precision.value} it strays from the original: {_figures(found)}{better}"
        )
    shop.progress.begin("describing it")
    more: dict[str, JsonValue] = {"resident_bytes": resident, "agreement_with_original": found}
    _describe(wish, checkpoint.role, licence, origin, shop.model, {**parameters, **more})


def _describe(
    wish: AddRequest, role: ModelRole, licence: str, origin: str, folder: Path, parameters: dict[str, JsonValue]
) -> None:
    write_manifest(
        folder,
        name=wish.name,
        role=role,
        licence=licence,
        source=origin,
        made_by=f"edge-rag {edge_rag.__version__} models add; BERT graph over texts end to end",
        parameters=parameters,
    )


def _figures(found: dict[str, object]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in found.items() if isinstance(value, float))
