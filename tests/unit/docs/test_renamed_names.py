"""The page of renamed public names: successors exist, old names do not."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

from edge_rag.api.v1 import access_pb2, admin_pb2, documents_pb2, encoding_pb2, generation_pb2, rag_pb2
from edge_rag.client import Client, RetryPolicy
from edge_rag.config.renamed import REMOVED_GENERATORS, RENAMED
from scripts.generate_docs.registry import families

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "renamed.md").read_text()
SHAPES = (ROOT / "docs" / "reference" / "json-output.md").read_text()
FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR for module in (access_pb2, admin_pb2, documents_pb2, encoding_pb2, generation_pb2, rag_pb2)
)


def rows(heading: str) -> list[tuple[str, ...]]:
    """Returns the rows of the tables below a heading, without back quotes."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = [re.findall(r"`([^`]+)`", line) for line in section.splitlines() if line.startswith("| ")]
    return [tuple(row) for row in found if row]


def test_the_page_lists_every_renamed_setting() -> None:
    assert {(old, new) for old, new in rows("Settings") if "." in old} == set(RENAMED.items())


def test_the_page_lists_every_model_that_no_longer_comes_along() -> None:
    assert [name for name, *_ in rows("Models")] == list(REMOVED_GENERATORS)
    assert not any((ROOT / "models" / name).exists() for name in REMOVED_GENERATORS)


@pytest.mark.parametrize(("old", "new"), rows("Metrics"))
def test_a_metric_is_served_by_its_new_name_only(old: str, new: str) -> None:
    names = {name for name, _, _ in families()}
    assert new in names
    assert old not in names


@pytest.mark.parametrize(("command", "old", "new"), [(row[0], row[1], row[2]) for row in rows("JSON")])
def test_a_json_key_is_documented_by_its_new_name_only(command: str, old: str, new: str) -> None:
    after = re.split(rf"^`edge-rag {command}`", SHAPES, flags=re.M)[1:]
    assert after
    shape = re.findall(r"\w+", re.split(r"^`edge-rag", after[0], flags=re.M)[0])
    assert new.split(".")[-1] in shape
    assert old.split(".")[-1] not in shape or old.split(".")[-1] == "why"


@cache
def proto_names() -> frozenset[str]:
    names: set[str] = set()
    for file in FILES:
        for service in file.services_by_name.values():
            names |= {f"{service.name}.{method.name}" for method in service.methods}
        for message in file.message_types_by_name.values():
            names |= {message.name, *(f"{message.name}.{field.name}" for field in message.fields)}
        for enum in file.enum_types_by_name.values():
            names |= {enum.name, *(value.name for value in enum.values)}
    return frozenset(names)


@pytest.mark.parametrize("row", rows("gRPC"))
def test_the_api_has_the_new_names_only(row: tuple[str, ...]) -> None:
    half = len(row) // 2
    assert not set(row[:half]) & proto_names()
    assert set(row[half:]) <= proto_names()


def exists(path: str) -> bool:
    module, _, name = path.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    ("old", "new"), [row for row in rows("Errors") + rows("Python client") if "edge_rag" in row[0]]
)
def test_python_code_has_the_new_names_only(old: str, new: str) -> None:
    assert exists(new)
    assert not exists(old)


def test_renamed_members_of_the_client_exist() -> None:
    assert hasattr(Client, "audit_events")
    assert not hasattr(Client, "decisions")
    assert hasattr(RetryPolicy(), "max_backoff_s")
