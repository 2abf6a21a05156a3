"""Generators: from a checkpoint, a GGUF file or an onnxruntime-genai folder to a model folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelNotAdded
from edge_rag.generator.prompt.chat_template import read_chat_template, render_chat_template
from edge_rag.model_store.checkpoint import Checkpoint, licence_of
from edge_rag.model_store.convert.comparison import MAX_LOSS, MIN_SAME_TOKEN, forms_table
from edge_rag.model_store.convert.staging import StagingDir, check_folder
from edge_rag.model_store.directory import matching, provenance_of
from edge_rag.model_store.source import AddRequest, ModelPrecision
from edge_rag.runtime.checkpoint.architectures import describe_checkpoint
from edge_rag.runtime.decoder.serial_decoder import require_genai
from edge_rag.runtime.lowering.geometry import GEOMETRY_FILE, GRAPH_FILE, WEIGHTS_FILE
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, write_manifest
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, check_genai_config
from edge_rag.runtime.model_folder.graph_check import external_files

_GGUF_PREPARATION = "edge_rag.model_store.convert.prepare_gguf"
_QUANTIZATION = "edge_rag.model_store.convert.prepare_checkpoint"
_TIMEOUT_S = 4 * 3600.0
_WHY_SERIAL = "its graph was made for that; a GGUF file or a checkpoint answers several at a time"


GENAI_WANTED = (
    "genai_config.json", "*.onnx", "*.data", "*.onnx_data", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "README.md", "LICENSE*",
)  # fmt: skip
"""Patterns of the files that are copied from an onnxruntime-genai folder."""

_KEPT = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE*")


@dataclass(frozen=True, slots=True)
class Built:
    """The files of a model, and its provenance."""

    folder: Path
    licence: str
    provenance: str
    made_by: str
    parameters: dict[str, JsonValue]


def check_chat_template(folder: Path) -> None:
    render_chat_template(*read_chat_template(folder))


def make_serial_generator(request: AddRequest, staging: StagingDir) -> None:
    """Builds the model folder from a folder of onnxruntime-genai, whose graph runs as it is.

    Raises:
        ModelNotAdded: It cannot be opened, or computes something else token by token than in a single run.
    """
    require_genai()
    check_folder(staging.source)
    check_chat_template(staging.source)
    staging.progress.begin("running it, one request at a time")
    found = staging.step("serial", staging.source)
    comparison = found["comparison"]
    if not comparison["good"]:
        raise ModelNotAdded(
            f"{request.source}: token by token it differs from a single run: {comparison['divergence']:.3f} nats on "
            f"average, regret {comparison['regret']:.3f} nats at worst; it was not added"
        )
    graph = check_genai_config((staging.source / GENAI_CONFIG_FILE).read_bytes()).graph
    external = external_files((staging.source / graph).read_bytes())
    provenance = provenance_of(request.source, staging.source, None)
    built = Built(staging.source, licence_of(staging.source), provenance, "as it came", {"weights": "as they came"})
    _write_model(
        request,
        built,
        staging,
        [GENAI_CONFIG_FILE, graph, *external],
        {"form": GeneratorForm.SERIAL.value, "why_serial": _WHY_SERIAL, "sizes": found["sizes"]}
        | {"resident_bytes": found["resident_bytes"], "agreement_with_itself": comparison},
    )


def make_gguf_generator(request: AddRequest, file: Path, commit: str | None, staging: StagingDir) -> None:
    """Builds the model folder from a GGUF file.

    Args:
        commit: Commit of the hub's repository that it was fetched at; None if it was not.

    Raises:
        ModelNotAdded: The file cannot be read, or the model computes something else than the file's weights.
    """
    staging.progress.begin("writing the paged graph")
    found = staging.step("write", file, staging.converted, program=_GGUF_PREPARATION)
    staging.progress.begin("comparing it with the file's weights in float32")
    comparison = staging.step("compare", file, staging.converted, program=_GGUF_PREPARATION)
    if not (comparison["good"] or request.accept_loss):
        raise ModelNotAdded(
            f"{request.source}: the model differs too much from the file's weights: {comparison['divergence']:.3f} "
            f"nats on average (at most {MAX_LOSS}), and the same best token at {comparison['same_token']:.1%} of the "
            f"positions (at least {MIN_SAME_TOKEN:.0%}); it was not added; --accept-loss adds it nevertheless"
        )
    parameters: dict[str, JsonValue] = {key: found[key] for key in ("weights", "family", "architecture")}
    if commit is not None:
        parameters["revision"] = commit
    for notice in staging.source.glob("LICENSE*"):
        shutil.copyfile(notice, staging.converted / notice.name)
    provenance = provenance_of(request.source, staging.source, commit)
    built = Built(staging.converted, found["licence"], provenance, "GGUF", parameters)
    _write_model(
        request,
        built,
        staging,
        [GRAPH_FILE, GEOMETRY_FILE, WEIGHTS_FILE],
        {"form": GeneratorForm.PAGED.value, "sizes": found["sizes"]}
        | {"resident_bytes": comparison.pop("resident_bytes"), "agreement_with_original": comparison},
    )


def make_quantized_generator(
    request: AddRequest, checkpoint: Checkpoint, commit: str | None, staging: StagingDir
) -> None:
    """Builds the model folder from a checkpoint in the smallest form that passes the gate.

    Raises:
        ModelNotLowerable: Its network has something that no graph here computes; names it.
        ModelNotAdded: It cannot be read, or no form that was tried passes the gate; the message has their figures.
    """
    if request.precision is ModelPrecision.FP32:
        raise ModelNotAdded(f"{request.source}: --precision of a language model is int4 or int8, not fp32")
    describe_checkpoint(staging.source, 1)
    check_chat_template(staging.source)
    staging.progress.begin("quantizing, and comparing with the weights in float32")
    precision = "any" if request.precision is None else request.precision.value
    found = staging.step(
        "quantize", staging.source, staging.converted, precision, program=_QUANTIZATION, timeout_s=_TIMEOUT_S
    )
    tried: list[dict[str, Any]] = found["tried"]
    if not (tried[-1]["good"] or request.accept_loss):
        raise ModelNotAdded(
            f"{request.source}: no form that was tried is close enough to the checkpoint: at most {MAX_LOSS} nats on "
            f"average, and the same best token at {MIN_SAME_TOKEN:.0%} of the positions at least; it was not added; "
            f"--accept-loss adds it nevertheless\n{forms_table(tried)}"
        )
    resident = staging.step("open", staging.converted, program=_QUANTIZATION)["resident_bytes"]
    for notice in staging.source.glob("LICENSE*"):
        shutil.copyfile(notice, staging.converted / notice.name)
    parameters: dict[str, JsonValue] = {
        "weights": found["weights"],
        "family": checkpoint.family,
        "architecture": checkpoint.architecture,
    }
    if commit is not None:
        parameters["revision"] = commit
    provenance = provenance_of(request.source, staging.source, commit)
    built = Built(staging.converted, checkpoint.licence, provenance, found["weights"], parameters)
    _write_model(
        request,
        built,
        staging,
        [GRAPH_FILE, GEOMETRY_FILE, WEIGHTS_FILE],
        {"form": GeneratorForm.PAGED.value, "sizes": found["sizes"], "resident_bytes": resident}
        | {"agreement_with_original": tried[-1], "forms_tried": list(tried)},
    )


def _write_model(
    request: AddRequest, built: Built, staging: StagingDir, files: list[str], parameters: dict[str, JsonValue]
) -> None:
    """Moves the required files into the model folder and writes its manifest."""
    staging.progress.begin("writing the manifest")
    staging.model.mkdir()
    names = [path.name for path in built.folder.iterdir()]
    for name in {*files, *matching(names, _KEPT)}:
        (built.folder / name).rename(staging.model / name)
    write_manifest(
        staging.model,
        name=request.name,
        role=ModelRole.GENERATOR,
        licence=request.licence or built.licence,
        source=built.provenance,
        made_by=f"edge-rag {edge_rag.__version__} models add; {built.made_by}",
        parameters={
            **built.parameters,
            "weight_bytes": sum(path.stat().st_size for path in staging.model.iterdir()),
            **parameters,
        },
    )
