"""Generators: from a checkpoint or an onnxruntime-genai folder to a model folder, lowered if possible."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelNotAdded, ModelNotLowerable
from edge_rag.generator.prompt.chat_template import read_chat_template, render_chat_template
from edge_rag.model_store.checkpoint import ARCHITECTURES, Checkpoint, licence_of
from edge_rag.model_store.convert.comparison import MAX_LOSS, MIN_SAME_TOKEN, forms_table
from edge_rag.model_store.convert.staging import StagingDir, check_folder, run_python
from edge_rag.model_store.directory import matching, provenance_of
from edge_rag.model_store.source import BLOCK, AddProgress, AddRequest, ModelPrecision
from edge_rag.runtime.checkpoint.architectures import DIRECT, describe_checkpoint
from edge_rag.runtime.lowering.geometry import GEOMETRY_FILE, GRAPH_FILE, WEIGHTS_FILE
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, write_manifest
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, check_genai_config
from edge_rag.runtime.model_folder.graph_check import external_files

_BUILDER = "edge_rag.runtime.lowering.genai_builder"
_GGUF_PREPARATION = "edge_rag.model_store.convert.prepare_gguf"
_QUANTIZATION = "edge_rag.model_store.convert.prepare_checkpoint"
_NEEDED = ("torch", "transformers", "onnx_ir")
_TIMEOUT_S = 4 * 3600.0


def check_converter() -> None:
    """Checks that the packages for conversion are installed.

    Raises:
        ModelNotAdded: They are not; the message has the command that installs them, and an alternative.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ModelNotAdded(
            f"converting needs {', '.join(missing)}: install them with `pip install 'edge-rag[convert]'`, or run "
            "`edge-rag models add` on a larger machine and add the folder it made here"
        )


def needs_builder(architecture: str) -> bool:
    """Whether the graph of this class of transformers is made by onnxruntime-genai's builder, not written here."""
    role, _ = ARCHITECTURES.get(architecture, (None, ""))
    return role is ModelRole.GENERATOR and architecture not in DIRECT


def convert(
    checkpoint: Path, target: Path, precision: ModelPrecision, scratch: Path, threads: int, progress: AddProgress
) -> None:
    """Builds an onnxruntime-genai folder from a checked checkpoint.

    Args:
        checkpoint: A private copy of a Hugging Face folder, without code.
    """
    check_converter()
    options = ["hf_remote=false"]
    if precision is not ModelPrecision.FP32:
        options += ["accuracy_level=4", f"block_size={BLOCK}"]
    cache = str(scratch / "builder")  # the builder deletes it at the end
    arguments = ["-i", str(checkpoint), "-o", str(target), "-p", precision.value, "-e", "cpu", "-c", cache]
    run_python(
        _BUILDER, [*arguments, "--extra_options", *options], scratch, progress, timeout_s=_TIMEOUT_S, threads=threads
    )


GENAI_WANTED = (
    "genai_config.json", "*.onnx", "*.data", "*.onnx_data", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "README.md", "LICENSE*",
)  # fmt: skip
"""Patterns of the files that are copied from an onnxruntime-genai folder."""

_KEPT = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE*")


@dataclass(frozen=True, slots=True)
class Built:
    """An onnxruntime-genai folder and its provenance."""

    folder: Path
    licence: str
    provenance: str
    made_by: str
    parameters: dict[str, JsonValue]


def check_chat_template(folder: Path) -> None:
    render_chat_template(*read_chat_template(folder))


def use_original(request: AddRequest, staging: StagingDir) -> Built:
    check_folder(staging.source)
    check_chat_template(staging.source)
    provenance = provenance_of(request.source, staging.source, None)
    return Built(staging.source, licence_of(staging.source), provenance, "as it came", {"weights": "as they came"})


def convert_checkpoint(request: AddRequest, checkpoint: Checkpoint, commit: str | None, staging: StagingDir) -> Built:
    """Converts the checkpoint of a generator."""
    check_chat_template(staging.source)
    precision = request.precision or ModelPrecision.INT4
    staging.progress.begin(f"converting to {precision.value}")
    convert(
        staging.source, staging.converted, precision, staging.scratch, len(os.sched_getaffinity(0)), staging.progress
    )
    for notice in staging.source.glob("LICENSE*"):
        shutil.copyfile(notice, staging.converted / notice.name)
    check_folder(staging.converted)
    block = "" if precision is ModelPrecision.FP32 else f", block {BLOCK}"
    parameters: dict[str, JsonValue] = {
        "weights": precision.value + block,
        "family": checkpoint.family,
        "architecture": checkpoint.architecture,
    }
    if commit is not None:
        parameters["revision"] = commit
    provenance = provenance_of(request.source, staging.source, commit)
    builder = f"onnxruntime-genai {importlib.metadata.version('onnxruntime-genai')} builder, {precision.value}"
    shutil.rmtree(staging.source)  # otherwise the disk would need space for the weights twice
    return Built(staging.converted, checkpoint.licence, provenance, builder + block, parameters)


def make_generator(request: AddRequest, built: Built, staging: StagingDir) -> None:
    staging.progress.begin("lowering")
    found = staging.step("lower", built.folder)
    if found.pop("lowerable"):
        _paged(request, built, staging, found)
    else:
        _serial(request, built, staging, found["why"])


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


def is_written_directly(request: AddRequest, staging: StagingDir) -> bool:
    """Whether a checkpoint's graph is written here; other architectures and float32 go through the builder."""
    if request.precision is ModelPrecision.FP32:
        return False
    try:
        describe_checkpoint(staging.source, 1)
    except ModelNotLowerable as error:
        staging.progress.detail(f"{error}; the builder converts it")
        return False
    return True


def make_quantized_generator(
    request: AddRequest, checkpoint: Checkpoint, commit: str | None, staging: StagingDir
) -> None:
    """Builds the model folder from a checkpoint in the smallest form that passes the gate.

    Raises:
        ModelNotAdded: It cannot be read, or no form that was tried passes the gate; the message has their figures.
    """
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


def _paged(request: AddRequest, built: Built, staging: StagingDir, sizes: dict[str, JsonValue]) -> None:
    reference = staging.scratch / "reference.npz"
    staging.progress.begin("running the original graph")
    staging.step("generate", built.folder, reference)
    staging.progress.begin("comparing the lowered graph with the original")
    comparison = staging.step("compare", built.folder, reference)
    # The original of an unquantized checkpoint is the checkpoint itself, so that the gate of all other ways applies.
    exact = request.precision is ModelPrecision.FP32 and not request.accept_loss
    if not comparison["good"] or (exact and not comparison["passes_gate"]):
        raise ModelNotAdded(
            f"{request.source}: the lowered model differs from the original: {comparison['divergence']:.3f} nats on "
            f"average, regret {comparison['regret']:.3f} nats at worst; it was not added"
        )
    graph = (built.folder / GRAPH_FILE).read_bytes()
    _write_model(
        request,
        built,
        staging,
        [GRAPH_FILE, GEOMETRY_FILE, *external_files(graph)],
        {"form": GeneratorForm.PAGED.value, "sizes": sizes, "resident_bytes": comparison.pop("resident_bytes")}
        | {"agreement_with_original": comparison},
    )


def _serial(request: AddRequest, built: Built, staging: StagingDir, why: str) -> None:
    staging.progress.begin(f"no paged form ({why}), so it will answer one question at a time; running it")
    found = staging.step("serial", built.folder)
    comparison = found["comparison"]
    if not comparison["good"]:
        raise ModelNotAdded(
            f"{request.source}: token by token it differs from a single run: {comparison['divergence']:.3f} nats on "
            f"average, regret {comparison['regret']:.3f} nats at worst; it was not added"
        )
    graph = check_genai_config((built.folder / GENAI_CONFIG_FILE).read_bytes()).graph
    external = external_files((built.folder / graph).read_bytes())
    _write_model(
        request,
        built,
        staging,
        [GENAI_CONFIG_FILE, graph, *external],
        {"form": GeneratorForm.SERIAL.value, "why_serial": why, "sizes": found["sizes"]}
        | {"resident_bytes": found["resident_bytes"], "agreement_with_itself": comparison},
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
