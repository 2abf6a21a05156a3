"""Reading what the board says it is, how it may use power, and how warm it is."""

from __future__ import annotations

import re
from pathlib import Path

from edge_rag.device.facts import BoardFacts, ThermalZone
from edge_rag.device.probing.files import integer_of, text_of

_MILLIDEGREES = 1000
_ABSOLUTE_ZERO = -273.15


def read_board(root: Path) -> BoardFacts:
    """Reads the device tree or, on PCs, what the firmware says; on Jetsons the release and the power mode.

    Args:
        root: Where ``proc``, ``sys``, ``etc`` and ``var`` are.
    """
    tree = root / "proc/device-tree"
    compatible = tuple(name for name in (text_of(tree / "compatible") or "").split("\0") if name)
    model = text_of(tree / "model")
    if model is None:
        firmware = root / "sys/class/dmi/id"
        names = (text_of(firmware / "sys_vendor"), text_of(firmware / "product_name"))
        model = " ".join(name for name in names if name)
    release = re.search(r"# R(\d+) \(release\), REVISION: (\d+)", text_of(root / "etc/nv_tegra_release") or "")
    return BoardFacts(
        model=model,
        compatible=compatible,
        jetson_release=f"{release[1]}.{release[2]}" if release else None,
        power_mode=_power_mode(root),
    )


def read_thermal(root: Path) -> tuple[ThermalZone, ...]:
    """Reads the temperature sensors; one that cannot be read now is left out."""
    folders = sorted((root / "sys/class/thermal").glob("thermal_zone*"), key=lambda each: (len(each.name), each.name))
    zones: list[ThermalZone] = []
    for folder in folders:
        value = integer_of(folder / "temp")
        if value is None or value / _MILLIDEGREES <= _ABSOLUTE_ZERO:
            continue
        zones.append(
            ThermalZone(
                name=text_of(folder / "type") or folder.name,
                celsius=value / _MILLIDEGREES,
                passive_celsius=_trip(folder, "passive"),
                critical_celsius=_trip(folder, "critical"),
            )
        )
    return tuple(zones)


def _trip(folder: Path, kind: str) -> float | None:
    values = [
        value / _MILLIDEGREES
        for file in folder.glob("trip_point_*_type")
        if text_of(file) == kind
        and (value := integer_of(file.with_name(file.name.replace("_type", "_temp")))) is not None
        and value > 0
    ]
    return min(values, default=None)


def _power_mode(root: Path) -> str | None:
    status = re.fullmatch(r"pmode:(\d+)(?:\s.*)?", text_of(root / "var/lib/nvpmodel/status") or "", re.DOTALL)
    if status is None:
        return None
    number = int(status[1])
    modes = re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", text_of(root / "etc/nvpmodel.conf") or "")
    return next((name for each, name in modes if int(each) == number), f"mode {number}")
