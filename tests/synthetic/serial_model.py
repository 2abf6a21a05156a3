"""A tiny model that has no paged form: its attention leaves room for attending to nothing, which the pages do not."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
from onnx import helper

from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest
from tests.synthetic.tiny_model import FIXTURES

WHY = "smooth_softmax = 1 has no paged form"


def unlowerable_folder(target: Path, family: str = "tiny-llama") -> Path:
    """Makes a folder of onnxruntime-genai's."""
    shutil.copytree(FIXTURES / family, target)
    for name in ("manifest.json", "paged.json", "paged.onnx", "paged.onnx.data"):
        (target / name).unlink()
    model = onnx.load(target / "model.onnx", load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.attribute.append(helper.make_attribute("smooth_softmax", 1))
    (target / "model.onnx").write_bytes(model.SerializeToString())
    return target


def serial_folder(target: Path) -> Path:
    """Makes a model folder that runs serially."""
    unlowerable_folder(target)
    write_manifest(
        target,
        name="serial",
        role=ModelRole.GENERATOR,
        licence="Apache-2.0",
        source="random weights",
        made_by="a test",
        parameters={"form": "serial", "why_serial": WHY},
    )
    return target
