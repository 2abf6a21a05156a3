"""The bill of materials of a release: CycloneDX 1.6 as JSON, made from the wheels and the models' manifests."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email import message_from_bytes
from pathlib import Path
from typing import Any

from scripts.packaging.building import Sources


def bill_of_materials(sources: Sources, wheels: Sequence[Path]) -> str:
    """Returns the bill of the wheels and of the default models, the same text for the same files.

    Hashes are of the wheels' files. A licence is an SPDX expression if the package states one, else its own words.
    """
    components = [_package(wheel) for wheel in wheels]
    components += [_model(path) for path in sorted((sources.folder / "models").glob("*/manifest.json"))]
    content: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(sources.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": "edge-rag",
                "name": "edge-rag",
                "version": sources.version,
                "properties": [{"name": "edge-rag:commit", "value": sources.commit}],
            },
        },
        "components": components,
        "dependencies": [{"ref": "edge-rag", "dependsOn": sorted(part["bom-ref"] for part in components)}],
    }
    identity = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    content["serialNumber"] = uuid.UUID(bytes=identity[:16], version=4).urn
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _package(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        metadata = message_from_bytes(archive.read(name))
    name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
    url = f"pkg:pypi/{name}@{metadata['Version']}"
    return {
        "type": "library",
        "bom-ref": f"{url}?file_name={wheel.name}",
        "name": name,
        "version": metadata["Version"],
        "purl": f"{url}?file_name={wheel.name}",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
        "licenses": _licences(metadata["License-Expression"], metadata["License"], metadata.get_all("Classifier", [])),
    }


def _licences(expression: str | None, words: str | None, classifiers: Sequence[str]) -> list[dict[str, Any]]:
    if expression:
        return [{"expression": expression}]
    names = [line.rsplit(" :: ", 1)[-1] for line in classifiers if line.startswith("License :: ")]
    if words and len(words) < 80 and "\n" not in words:
        names = [words]
    return [{"license": {"name": name}} for name in names]


def _model(path: Path) -> dict[str, Any]:
    manifest = json.loads(path.read_bytes())
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{manifest['name']}@{manifest['sha256']}",
        "name": manifest["name"],
        "version": manifest["sha256"],
        "description": manifest["source"],
        "hashes": [{"alg": "SHA-256", "content": manifest["files"]["model.onnx"]["sha256"]}],
        "licenses": [{"expression": manifest["licence"]}],
    }
