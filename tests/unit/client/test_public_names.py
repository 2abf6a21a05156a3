import dataclasses
import enum
import inspect
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import edge_rag.client
from edge_rag.client import AsyncClient, CallStatus, Client, ClientError, NotFound, ServerError

ROOT = Path(__file__).parents[3]
HEAVY = {"numpy", "pydantic", "structlog", "onnxruntime", "faiss", "zeroconf", "apsw", "tokenizers", "httpx2"}


def test_the_module_shows_its_public_names_and_nothing_else() -> None:
    shown = dir(edge_rag.client)
    assert shown == sorted(edge_rag.client.__all__)
    assert all(hasattr(edge_rag.client, name) for name in shown)


def reachable(kind: Any, seen: dict[str, type]) -> None:
    if isinstance(kind, typing.NewType) or kind is Any:
        return
    for argument in typing.get_args(kind):
        reachable(argument, seen)
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type) or not kind.__module__.startswith("edge_rag.") or kind.__name__ in seen:
        return
    seen[kind.__name__] = kind
    if dataclasses.is_dataclass(kind):
        for hint in typing.get_type_hints(kind).values():
            reachable(hint, seen)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_everything_that_calls_take_and_return_is_exported(client: type) -> None:
    seen: dict[str, type] = {}
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            for hint in typing.get_type_hints(method).values():
                reachable(hint, seen)
    assert len(seen) > 40
    missing = sorted(
        name
        for name, kind in seen.items()
        if (dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum)) and name not in edge_rag.client.__all__
    )
    assert missing == []


@pytest.mark.parametrize("status", list(CallStatus))
def test_an_error_is_of_the_class_of_its_status(status: CallStatus) -> None:
    error = ClientError(status, "it failed", advice="Do this", retry_after_s=2.0)
    assert type(error) is not ClientError
    assert (error.status, str(error), error.retry_after_s) == (status, "it failed. Do this", 2.0)
    assert isinstance(error, NotFound) == (status is CallStatus.NOT_FOUND)
    assert isinstance(error, ServerError) == (status.name in ("UNKNOWN", "INTERNAL", "DATA_LOSS", "UNIMPLEMENTED"))


def test_importing_the_client_imports_no_model_runtime_and_nothing_heavy() -> None:
    program = "import sys, edge_rag.client; print(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(ran.stdout.split()) & HEAVY == set()


def test_the_blocking_client_is_generated_from_the_asynchronous_one(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "generate_sync_client"
    subprocess.run([sys.executable, script, tmp_path], check=True, capture_output=True)
    current = ROOT / "edge_rag" / "client" / "_sync"
    assert {path.name: path.read_text() for path in current.glob("*.py")} == {
        path.name: path.read_text() for path in tmp_path.iterdir()
    }
