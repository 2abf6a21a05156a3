"""Embedders and cross-encoders: from a checkpoint to a model folder with a graph over packed texts."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.checkpoint import Checkpoint
from edge_rag.model_store.convert.encoder_checkpoint import read_encoder
from edge_rag.model_store.convert.staging import StagingDir, check_folder
from edge_rag.model_store.directory import provenance_of
from edge_rag.model_store.source import BLOCK, AddRequest, ModelPrecision
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest

_PREPARATION = "edge_rag.model_store.convert.prepare_encoder"


def make_encoder(request: AddRequest, checkpoint: Checkpoint, commit: str | None, staging: StagingDir) -> None:
    """Builds the model folder and compares it with the original in FP32.

    Raises:
        ModelFolderInvalid: The checkpoint has something that is not allowed.
        ModelNotAdded: It cannot be converted, or computes something else than the original.
    """
    encoder = read_encoder(staging.source, checkpoint.role)
    precision = request.precision or ModelPrecision.INT8
    provenance = provenance_of(request.source, staging.source, commit)
    reference = staging.scratch / "reference.npz"
    role = checkpoint.role.value
    staging.model.mkdir()
    staging.progress.begin("running the original")
    staging.step("reference", staging.source, role, reference, program=_PREPARATION)
    staging.progress.begin(f"converting to {precision.value}")
    staging.step("build", staging.source, role, precision.value, staging.model / "model.onnx", program=_PREPARATION)
    for copied in (staging.source / "tokenizer.json", *staging.source.glob("LICENSE*")):
        shutil.copyfile(copied, staging.model / copied.name)
    check_folder(staging.model)
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
    licence = request.licence or checkpoint.licence
    _write_manifest(request, checkpoint.role, licence, provenance, staging.model, parameters)
    staging.progress.begin("comparing it with the original")
    found = staging.step("compare", staging.model, reference, program=_PREPARATION)
    resident = found.pop("resident_bytes")
    if not found["good"]:
        hint = "; a higher --precision may help" if precision is not ModelPrecision.FP32 else ""
        raise ModelNotAdded(
            f"{request.source}: in {precision.value} it differs from the original: {_differences(found)}{hint}"
        )
    staging.progress.begin("writing the manifest")
    measured: dict[str, JsonValue] = {"resident_bytes": resident, "agreement_with_original": found}
    _write_manifest(request, checkpoint.role, licence, provenance, staging.model, {**parameters, **measured})


def _write_manifest(
    request: AddRequest, role: ModelRole, licence: str, provenance: str, folder: Path, parameters: dict[str, JsonValue]
) -> None:
    write_manifest(
        folder,
        name=request.name,
        role=role,
        licence=licence,
        source=provenance,
        made_by=f"edge-rag {edge_rag.__version__} models add; BERT graph over texts end to end",
        parameters=parameters,
    )


def _differences(found: dict[str, object]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in found.items() if isinstance(value, float))
