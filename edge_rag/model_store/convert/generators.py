"""Generators: from a checkpoint or a folder of onnxruntime-genai's to a model folder, lowered where possible."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.checkpoint import Checkpoint, licence_of
from edge_rag.model_store.convert.genai import BLOCK, ModelPrecision, convert
from edge_rag.model_store.convert.staging import StagingDir, check_folder
from edge_rag.model_store.copying import matching
from edge_rag.model_store.directory import origin_of
from edge_rag.model_store.request import AddRequest
from edge_rag.runtime.lowering.geometry import GEOMETRY_FILE, GRAPH_FILE
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, write_manifest
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, check_genai_config
from edge_rag.runtime.model_folder.graph_check import external_files

GENAI_WANTED = (
    "genai_config.json", "*.onnx", "*.data", "*.onnx_data", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "README.md", "LICENSE*",
)  # fmt: skip
"""Names of files that are taken from a folder of onnxruntime-genai's."""

_KEPT = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE*")


@dataclass(frozen=True, slots=True)
class Built:
    """A folder of onnxruntime-genai's, and how it came about.

    Attributes:
        folder: The folder, checked.
        licence: SPDX expression.
        origin: Where the weights are from.
        made_by: How the graph was made.
        parameters: What else the manifest is to say.
    """

    folder: Path
    licence: str
    origin: str
    made_by: str
    parameters: dict[str, JsonValue]


def as_it_came(wish: AddRequest, shop: StagingDir) -> Built:
    """Takes a folder of onnxruntime-genai's as it is.

    Raises:
        ModelFolderInvalid: It holds something that is not allowed.
    """
    check_folder(shop.source)
    origin = origin_of(wish.source, shop.source, None)
    return Built(shop.source, licence_of(shop.source), origin, "as it came", {"weights": "as they came"})


def converted(wish: AddRequest, checkpoint: Checkpoint, commit: str | None, shop: StagingDir) -> Built:
    """Converts a checkpoint of a generator.

    Raises:
        ModelFolderInvalid: It holds something that is not allowed.
        ModelNotAdded: It is of no kind that can be converted, or the converter failed.
    """
    precision = wish.precision or ModelPrecision.INT4
    shop.progress.begin(f"converting to {precision.value}")
    convert(shop.source, shop.converted, precision, shop.scratch, len(os.sched_getaffinity(0)), shop.progress)
    for notice in shop.source.glob("LICENSE*"):
        shutil.copyfile(notice, shop.converted / notice.name)
    check_folder(shop.converted)
    block = "" if precision is ModelPrecision.FP32 else f", block {BLOCK}"
    parameters: dict[str, JsonValue] = {
        "weights": precision.value + block,
        "family": checkpoint.family,
        "architecture": checkpoint.architecture,
    }
    if commit is not None:
        parameters["revision"] = commit
    origin = origin_of(wish.source, shop.source, commit)
    builder = f"onnxruntime-genai {importlib.metadata.version('onnxruntime-genai')} builder, {precision.value}"
    shutil.rmtree(shop.source)  # twice the weights would have to fit otherwise
    return Built(shop.converted, checkpoint.licence, origin, builder + block, parameters)


def make_generator(wish: AddRequest, built: Built, shop: StagingDir) -> None:
    """Makes the model folder: of the lowered graph, or of the graph as it is where it has no paged form.

    Raises:
        ModelNotAdded: The model cannot be opened, or computes something else than it should.
    """
    shop.progress.begin("lowering")
    found = shop.step("lower", built.folder)
    if found.pop("lowerable"):
        _paged(wish, built, shop, found)
    else:
        _serial(wish, built, shop, found["why"])


def _paged(wish: AddRequest, built: Built, shop: StagingDir, sizes: dict[str, JsonValue]) -> None:
    reference = shop.scratch / "reference.npz"
    shop.progress.begin("running the original graph")
    shop.step("generate", built.folder, reference)
    shop.progress.begin("comparing the lowered graph with the original")
    agreement = shop.step("compare", built.folder, reference)
    if not agreement["good"]:
        raise ModelNotAdded(
            f"{wish.source}: lowered, it computes something else: {agreement['divergence']:.3f} nats apart on average, "
            f"its choice {agreement['regret']:.3f} nats behind at worst; it was not added"
        )
    graph = (built.folder / GRAPH_FILE).read_bytes()
    _describe(
        wish,
        built,
        shop,
        [GRAPH_FILE, GEOMETRY_FILE, *external_files(graph)],
        {"form": GeneratorForm.PAGED.value, "sizes": sizes, "resident_bytes": agreement.pop("resident_bytes")}
        | {"agreement_with_original": agreement},
    )


def _serial(wish: AddRequest, built: Built, shop: StagingDir, why: str) -> None:
    shop.progress.begin(f"no paged form ({why}), so it will answer one question at a time; running it")
    found = shop.step("serial", built.folder)
    agreement = found["agreement"]
    if not agreement["good"]:
        raise ModelNotAdded(
            f"{wish.source}: token by token it computes something else than at once: {agreement['divergence']:.3f} "
            f"nats apart on average, its choice {agreement['regret']:.3f} nats behind at worst; it was not added"
        )
    graph = check_genai_config((built.folder / GENAI_CONFIG_FILE).read_bytes()).graph
    external = external_files((built.folder / graph).read_bytes())
    _describe(
        wish,
        built,
        shop,
        [GENAI_CONFIG_FILE, graph, *external],
        {"form": GeneratorForm.SERIAL.value, "why_serial": why, "sizes": found["sizes"]}
        | {"resident_bytes": found["resident_bytes"], "agreement_with_itself": agreement},
    )


def _describe(
    wish: AddRequest, built: Built, shop: StagingDir, files: list[str], parameters: dict[str, JsonValue]
) -> None:
    """Moves what is needed into the model folder and writes its manifest."""
    shop.progress.begin("describing it")
    shop.model.mkdir()
    names = [path.name for path in built.folder.iterdir()]
    for name in {*files, *matching(names, _KEPT)}:
        (built.folder / name).rename(shop.model / name)
    write_manifest(
        shop.model,
        name=wish.name,
        role=ModelRole.GENERATOR,
        licence=wish.licence or built.licence,
        source=built.origin,
        made_by=f"edge-rag {edge_rag.__version__} models add; {built.made_by}",
        parameters={
            **built.parameters,
            "weight_bytes": sum(path.stat().st_size for path in shop.model.iterdir()),
            **parameters,
        },
    )
