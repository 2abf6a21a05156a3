"""Encoders and models of pairs: from a checkpoint to a model folder with a graph over packed texts."""

from __future__ import annotations

import shutil
from typing import Any

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.checkpoint import Checkpoint
from edge_rag.model_store.convert.comparison import MAX_SCORE_ERROR, MIN_COSINE, MIN_MEAN_COSINE, forms_table
from edge_rag.model_store.convert.encoder_checkpoint import read_encoder, read_weights
from edge_rag.model_store.convert.staging import StagingDir, check_folder
from edge_rag.model_store.directory import provenance_of
from edge_rag.model_store.source import AddRequest, ModelPrecision
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, write_manifest

_PREPARATION = "edge_rag.model_store.convert.prepare_encoder"
_TIMEOUT_S = 4 * 3600.0

_FORMS = {ModelPrecision.INT4: "4 bits", ModelPrecision.INT8: "8 bits", ModelPrecision.FP32: "float32"}
_BY_SIZE = (ModelPrecision.INT4, ModelPrecision.INT8)
"""Forms that are tried where none is asked for, from small to large."""


def make_encoder(request: AddRequest, checkpoint: Checkpoint, commit: str | None, staging: StagingDir) -> None:
    """Builds the model folder in the smallest form whose results are close to those of the checkpoint in float32.

    Raises:
        ModelNotAdded: It cannot be converted, or no form that was tried is close enough; the message has the figures.
    """
    encoder = read_encoder(staging.source, checkpoint.role)
    read_weights(staging.source, checkpoint.role)
    reference, role = staging.scratch / "reference.npz", checkpoint.role.value
    staging.model.mkdir()
    for copied in (staging.source / "tokenizer.json", *staging.source.glob("LICENSE*")):
        shutil.copyfile(copied, staging.model / copied.name)
    check_folder(staging.model)
    parameters: dict[str, JsonValue] = {
        "max_tokens": encoder.shape.max_tokens,
        "family": checkpoint.family,
        "architecture": checkpoint.architecture,
    }
    if commit is not None:
        parameters["revision"] = commit
    if checkpoint.role is ModelRole.EMBEDDER:
        parameters |= {"dimension": encoder.shape.hidden, "pooling": encoder.pooling.value}
        prompts = {"question_prompt": encoder.question_prompt, "passage_prompt": encoder.passage_prompt}
        parameters |= {name: prompt for name, prompt in prompts.items() if prompt}
    staging.progress.begin("computing the weights in float32")
    staging.step("reference", staging.source, role, reference, program=_PREPARATION, timeout_s=_TIMEOUT_S)
    provenance = provenance_of(request.source, staging.source, commit)
    tried: list[dict[str, Any]] = []
    for precision in _BY_SIZE if request.precision is None else (request.precision,):
        form = _FORMS[precision]
        for left in staging.model.glob("model.onnx*"):
            left.unlink()
        staging.progress.begin(f"converting to {form}")
        built = staging.step(
            "build", staging.source, role, precision.value, staging.model, program=_PREPARATION, timeout_s=_TIMEOUT_S
        )
        check_folder(staging.model)
        _write_manifest(request, checkpoint, provenance, staging, parameters)
        staging.progress.begin(f"comparing {form} with the weights in float32")
        found = staging.step("compare", staging.model, reference, program=_PREPARATION)
        parameters["resident_bytes"] = found.pop("resident_bytes")
        tried.append({"form": form, **built, **found})
        if found["good"]:
            break
    if not (tried[-1]["good"] or request.accept_loss):
        raise ModelNotAdded(
            f"{request.source}: no form that was tried is close enough to the checkpoint: {_bounds(checkpoint.role)}; "
            f"it was not added; --accept-loss adds it nevertheless\n{forms_table(tried)}"
        )
    staging.progress.begin("writing the manifest")
    measured: dict[str, JsonValue] = {"agreement_with_original": tried[-1], "forms_tried": list(tried)}
    weights = f"{tried[-1]['form']}, {tried[-1]['bits_per_weight']} bits a weight"
    _write_manifest(request, checkpoint, provenance, staging, {**parameters, "weights": weights, **measured})


def _write_manifest(
    request: AddRequest,
    checkpoint: Checkpoint,
    provenance: str,
    staging: StagingDir,
    parameters: dict[str, JsonValue],
) -> ModelManifest:
    return write_manifest(
        staging.model,
        name=request.name,
        role=checkpoint.role,
        licence=request.licence or checkpoint.licence,
        source=provenance,
        made_by=f"edge-rag {edge_rag.__version__} models add; {checkpoint.family} graph over texts end to end",
        parameters=parameters,
    )


def _bounds(role: ModelRole) -> str:
    if role is not ModelRole.EMBEDDER:
        return f"an error of at most {MAX_SCORE_ERROR:.0%} of the scores' standard deviation"
    return f"a cosine of at least {MIN_MEAN_COSINE} on the mean and {MIN_COSINE} for every text"
