"""Facts of boards, put back as the files they would be read from.

They were put together from the kernel's device trees, vendors' images and manuals; none was recorded on a board of
ours.
"""

import tomllib
from pathlib import Path
from typing import Any

from edge_rag.core.placement import Provider, ProviderDevice
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.probe import read_facts

BOARDS = Path(__file__).parent / "boards"


def recorded(name: str, root: Path) -> DeviceFacts:
    board = tomllib.loads((BOARDS / f"{name}.toml").read_text(encoding="utf-8"))
    for path, content in (board["files"] | _core_files(board["cores"])).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode())
    devices = tuple(ProviderDevice(Provider(each), "cpu" if each == "cpu" else "gpu") for each in board["providers"])
    allowed = frozenset(board["allowed"]) if "allowed" in board else None
    return read_facts(
        root, board["machine"], allowed, board.get("packages", {}), devices, (), board.get("built_for_cuda")
    )


def _core_files(cores: dict[str, Any]) -> dict[str, str]:
    files: dict[str, str] = {}
    cpus = "sys/devices/system/cpu"
    for key, file in (("capacity", "cpu_capacity"), ("max_freq", "cpufreq/cpuinfo_max_freq")):
        for number, value in enumerate(cores.get(key, [])):
            files[f"{cpus}/cpu{number}/{file}"] = f"{value}\n"
    count = cores.get("count") or max(len(cores.get(key, [])) for key in ("capacity", "max_freq"))
    files[f"{cpus}/online"] = f"0-{count - 1}\n"
    if "governor" in cores:
        files |= {f"{cpus}/cpu{number}/cpufreq/scaling_governor": cores["governor"] + "\n" for number in range(count)}
    return files
