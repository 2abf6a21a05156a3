"""The command line imports only what a command needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from edge_rag.cli.main import COMMANDS

HEAVY = {"grpc", "numpy", "rich", "pydantic", "onnxruntime", "faiss", "onnx", "asyncio", "cryptography", "psutil"}


def imported(*commands: tuple[str, ...]) -> set[str]:
    """Runs commands in one process of their own; returns the heavy packages that this imported."""
    code = (
        "import json, sys\nfrom edge_rag.cli.main import main\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    try:\n        main(arguments, 'edge-rag')\n    except SystemExit as end:\n        assert not end.code\n"
        f"print('imported', *({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_version_and_help_import_no_heavy_package() -> None:
    assert imported(("--version",), ("--help",)) == set()


def test_the_help_of_commands_imports_no_heavy_package() -> None:
    assert imported(*((name, "--help") for name in COMMANDS)) == set()


def test_listing_tokens_imports_neither_grpc_nor_numpy(tmp_path: Path) -> None:
    assert not imported(("token", "list", "--data-dir", str(tmp_path))) & {"grpc", "numpy", "onnxruntime", "faiss"}
