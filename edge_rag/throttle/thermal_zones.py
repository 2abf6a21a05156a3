"""Temperatures as the kernel shows them: thermal zones, and sensors of processors that have none.

See Documentation/ABI/testing/sysfs-class-thermal and Documentation/hwmon/sysfs-interface.rst of Linux.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.core.status import Temperature
from edge_rag.throttle.files import read_number, read_text

_CONSTANT_ZONES: Final = frozenset({"PMIC-Die"})
"""Zones that show a fixed number: Jetson's power chip reports 50 or 100 degrees whatever it has."""

_PROCESSOR_CHIPS: Final = frozenset({"coretemp", "k10temp"})
"""Sensors of processors that may have no zone: Intel's and AMD's."""

_PACKAGE_ZONE: Final = "x86_pkg_temp"

_LOWEST_C: Final = -60.0
_HIGHEST_C: Final = 200.0
"""What lies outside is no temperature but a sensor that says it has none."""


@dataclass(frozen=True, slots=True)
class ThermalZone:
    """A zone at one moment, degrees Celsius.

    Attributes:
        name: As the board calls it; with a number behind it where several are called so.
        celsius: Its temperature.
        passive_c: From where on the kernel slows the processor down; None where it does not say.
        critical_c: Where the kernel switches the board off; None where it does not say.
    """

    name: str
    celsius: float
    passive_c: float | None
    critical_c: float | None


def read_zones(sysfs: Path) -> tuple[ThermalZone, ...]:
    """Reads every zone that has a temperature now; a board without any gives none.

    Args:
        sysfs: Where the kernel shows them, ``/sys``.
    """
    zones = [*_zones(sysfs / "class" / "thermal")]
    if not any(zone.name == _PACKAGE_ZONE for zone in zones):
        zones += _processors(sysfs / "class" / "hwmon")
    return _named_apart(zones)


def temperatures(sysfs: Path) -> tuple[Temperature, ...]:
    """Reads the temperature of every zone; see ``read_zones``."""
    return tuple(Temperature(zone.name, zone.celsius) for zone in read_zones(sysfs))


def _zones(folder: Path) -> list[ThermalZone]:
    found = []
    for zone in sorted(folder.glob("thermal_zone*"), key=_number):
        name, celsius = read_text(zone / "type"), _celsius(zone / "temp")
        if name and celsius is not None and name not in _CONSTANT_ZONES:
            trips = _trips(zone)
            found.append(ThermalZone(name, celsius, trips.get("passive"), trips.get("critical")))
    return found


def _trips(zone: Path) -> dict[str, float]:
    """Returns the lowest sensible point of each type; firmware fills points it does not use with 0 or less."""
    trips: dict[str, float] = {}
    for kind in sorted(zone.glob("trip_point_*_type")):
        name = read_text(kind)
        at = _celsius(kind.with_name(kind.name.removesuffix("_type") + "_temp"))
        if name and at is not None and at > 0:
            trips[name] = min(at, trips.get(name, at))
    return trips


def _processors(folder: Path) -> list[ThermalZone]:
    found = []
    for chip in sorted(folder.glob("hwmon*"), key=_number):
        name, celsius = read_text(chip / "name"), _celsius(chip / "temp1_input")
        if name in _PROCESSOR_CHIPS and celsius is not None:
            found.append(ThermalZone(name, celsius, _celsius(chip / "temp1_max"), _celsius(chip / "temp1_crit")))
    return found


def _celsius(path: Path) -> float | None:
    thousandths = read_number(path)
    if thousandths is None or not _LOWEST_C * 1000 < thousandths < _HIGHEST_C * 1000:
        return None
    return thousandths / 1000


def _named_apart(zones: list[ThermalZone]) -> tuple[ThermalZone, ...]:
    seen: dict[str, int] = {}
    named = []
    for zone in zones:
        seen[zone.name] = number = seen.get(zone.name, 0) + 1
        name = zone.name if number == 1 else f"{zone.name} {number}"
        named.append(ThermalZone(name, zone.celsius, zone.passive_c, zone.critical_c))
    return tuple(named)


def _number(path: Path) -> tuple[int, str]:
    digits = "".join(c for c in path.name if c.isdecimal())
    return int(digits or 0), path.name
