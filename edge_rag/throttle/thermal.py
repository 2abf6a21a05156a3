"""How hot the board is, and whether something slows it down already, as the kernel shows it.

See Documentation/ABI/testing/sysfs-class-thermal and Documentation/hwmon/sysfs-interface.rst of Linux.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from edge_rag.core.monitoring.throttling import Temperature
from edge_rag.device.facts import ThermalZone
from edge_rag.device.probing.files import integer_of, text_of
from edge_rag.device.probing.hardware import read_thermal

_CONSTANT_ZONES: Final = frozenset({"PMIC-Die"})
"""Zones that show a fixed number: Jetson's power chip reports 50 or 100 degrees whatever it has."""

_PROCESSOR_CHIPS: Final = frozenset({"coretemp", "k10temp"})
"""Sensors of processors that may have no zone: Intel's and AMD's."""

_PACKAGE_ZONE: Final = "x86_pkg_temp"
_HIGHEST_C: Final = 200.0
_SLOWING: Final = ("cpufreq", "devfreq", "thermal-cpufreq", "thermal-devfreq")
"""Beginnings of the types of cooling devices that cool by doing less; fans do not."""

_PI_THROTTLED: Final = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}
"""Bits of a Raspberry Pi's ``get_throttled`` that say what is so now; see its documentation of vcgencmd."""


def read_zones(root: Path) -> tuple[ThermalZone, ...]:
    """Reads every zone that has a temperature now; a board without any gives none.

    Args:
        root: Where ``sys`` is.
    """
    zones = [z for z in read_thermal(root) if z.name not in _CONSTANT_ZONES and z.celsius < _HIGHEST_C]
    if not any(zone.name == _PACKAGE_ZONE for zone in zones):
        zones += _processors(root / "sys/class/hwmon")
    return _named_apart(zones)


def temperatures(root: Path) -> tuple[Temperature, ...]:
    """Reads the temperature of every zone; see ``read_zones``."""
    return tuple(Temperature(zone.name, zone.celsius) for zone in read_zones(root))


def read_slowdowns(root: Path) -> tuple[str, ...]:
    """Returns what slows the board down at this moment, in words; nothing where nothing does, or nothing says so.

    Args:
        root: Where ``sys`` is.
    """
    return (*_cooling(root / "sys/class/thermal"), *_raspberry_pi(root / "sys/devices/platform"))


def read_event_counts(root: Path) -> Mapping[str, int]:
    """Reads the counters of moments at which the hardware slowed itself down; one that grows means that it does.

    Args:
        root: Where ``sys`` is.
    """
    counts = {}
    for kind in ("core", "package"):
        files = (root / "sys/devices/system/cpu").glob(f"cpu[0-9]*/thermal_throttle/{kind}_throttle_count")
        counts[f"processor {kind} throttled"] = sum(integer_of(file) or 0 for file in files)
    over_current = (root / "sys/class/hwmon").glob("hwmon*/oc*_event_cnt")
    counts["over-current"] = sum(integer_of(file) or 0 for file in over_current)
    return counts


def _cooling(folder: Path) -> Iterator[str]:
    for device in sorted(folder.glob("cooling_device*")):
        kind = text_of(device / "type") or ""
        if kind.lower().startswith(_SLOWING) and (integer_of(device / "cur_state") or 0) > 0:
            yield f"the kernel slows {kind} down"


def _raspberry_pi(folder: Path) -> Iterator[str]:
    for file in [*folder.glob("*/get_throttled"), *folder.glob("*/*/get_throttled")]:
        try:
            flags = int(text_of(file) or "0", 16)
        except ValueError:
            continue
        yield from (words for bit, words in _PI_THROTTLED.items() if flags >> bit & 1)


def _processors(folder: Path) -> Iterator[ThermalZone]:
    for chip in sorted(folder.glob("hwmon*"), key=lambda each: (len(each.name), each.name)):
        name, celsius = text_of(chip / "name"), _celsius(chip / "temp1_input")
        if name in _PROCESSOR_CHIPS and celsius is not None:
            yield ThermalZone(name, celsius, _celsius(chip / "temp1_max"), _celsius(chip / "temp1_crit"))


def _celsius(path: Path) -> float | None:
    thousandths = integer_of(path)
    return None if thousandths is None else thousandths / 1000


def _named_apart(zones: list[ThermalZone]) -> tuple[ThermalZone, ...]:
    seen: dict[str, int] = {}
    named = []
    for zone in zones:
        seen[zone.name] = number = seen.get(zone.name, 0) + 1
        named.append(zone if number == 1 else replace(zone, name=f"{zone.name} {number}"))
    return tuple(named)
