"""A tiny model of onnxruntime-genai, which runs as it is, one request at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest
from tests.synthetic.tiny_model import FIXTURES

WHY = "its graph was made for that"


def genai_folder(target: Path) -> Path:
    shutil.copytree(FIXTURES / "tiny-llama", target, ignore=shutil.ignore_patterns("manifest.json", "paged*"))
    return target


def serial_folder(target: Path) -> Path:
    """Makes a model folder that runs serially."""
    genai_folder(target)
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
