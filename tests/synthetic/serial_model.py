"""A tiny model of onnxruntime-genai, which runs as it is, one request at a time."""

import shutil
from pathlib import Path

from tests.synthetic.tiny_model import FIXTURES

WHY = "its graph was made for that"


def genai_folder(target: Path) -> Path:
    shutil.copytree(FIXTURES / "tiny-llama", target, ignore=shutil.ignore_patterns("manifest.json", "paged*"))
    return target
