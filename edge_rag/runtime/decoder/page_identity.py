"""What makes the bytes of KV pages what they are, beside their tokens."""

from __future__ import annotations

from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final

import onnxruntime as ort

from edge_rag.runtime.lowering.geometry import FORMAT, read_geometry
from edge_rag.runtime.model_folder.manifest import MANIFEST_NAME

PAGE_LAYOUT: Final = 1
"""Goes up with every change of how the operator lays a page out or rounds what is in it."""


def page_identity(folder: Path, directory: str) -> bytes:
    """Returns what pages of a model can be told apart by from those of any other.

    Equal ones come from the same files, lowered by the same rules, through the same operators and the same version of
    ONNX Runtime: then equal tokens give equal bytes.

    Args:
        folder: A lowered model's verified folder.
        directory: Id of the data directory whose text the pages are computed from.

    Returns:
        32 bytes.

    Raises:
        ModelFolderInvalid: The folder holds no lowered model.
    """
    manifest = sha256((folder / MANIFEST_NAME).read_bytes()).hexdigest()
    page = read_geometry(folder)
    parts = (manifest, FORMAT, PAGE_LAYOUT, page.page_tokens, page.page_bytes, ort.__version__, directory)
    return blake2b("\n".join(map(str, parts)).encode(), digest_size=32, person=b"page identity").digest()
