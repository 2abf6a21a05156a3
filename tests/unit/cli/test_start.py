import json
import subprocess
import sys
from pathlib import Path

from edge_rag.cli.main import COMMANDS

HEAVY = {"grpc", "numpy", "rich", "pydantic", "onnxruntime", "faiss", "onnx", "asyncio", "cryptography", "psutil"}

MODULES_OF_THE_DAEMON = 1300
"""Most modules that a daemon imports at its start; it was 1,223 when this was written."""


def imported(*commands: tuple[str, ...]) -> set[str]:
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
    assert imported(("--version",), ("--help",), *((name, "--help") for name in COMMANDS)) == set()


def test_a_daemon_without_remotes_announcements_and_http_imports_nothing_for_them() -> None:
    code = "import sys, edge_rag.daemon\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    for_others = ("httpx2", "zeroconf", "starlette", "uvicorn", "h11", "huggingface_hub", "pypdfium2", "bs4", "torch")
    assert not set(for_others) & {name.partition(".")[0] for name in modules}
    assert not [name for name in modules if name.startswith(("edge_rag.discovery", "edge_rag.server.http"))]
    assert len(modules) <= MODULES_OF_THE_DAEMON, "import what only some daemons need where they need it"


def test_listing_tokens_imports_neither_grpc_nor_numpy(tmp_path: Path) -> None:
    assert not imported(("token", "list", "--data-dir", str(tmp_path))) & {"grpc", "numpy", "onnxruntime", "faiss"}
