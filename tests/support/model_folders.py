"""Manifests of the models that tests make."""

from pathlib import Path

from pydantic import JsonValue

from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest


def describe_model(folder: Path, role: ModelRole, name: str = "tiny", **parameters: JsonValue) -> Path:
    """Writes the manifest of what a folder holds."""
    write_manifest(
        folder, name=name, role=role, licence="Apache-2.0", source="made here", made_by="a test", parameters=parameters
    )
    return folder
