"""Reads power, temperature, hardware throttling and memory pressure from the Linux kernel.

Power: Jetson's INA3221 and energy counters of processors (powercap). Temperature and throttling: see
Documentation/ABI/testing/sysfs-class-thermal and Documentation/hwmon/sysfs-interface.rst of Linux. Memory pressure
(PSI) and limits: see Documentation/accounting/psi.rst and Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from edge_rag.core.monitoring.resources import Temperature
from edge_rag.device.facts import ThermalZone
from edge_rag.device.hardware import integer_of, memory_limits, read_memory, read_thermal, text_of

_INPUT: Final = "VDD_IN"
"""The channel of the total power, on boards that measure it."""

_MAX_GAP_S: Final = 60.0
"""Longest time over which one power reading is integrated, seconds."""


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """An energy counter that wraps around.

    Attributes:
        full_joules: Value at which it wraps to 0.
    """

    joules: float
    full_joules: float


@dataclass(frozen=True, slots=True)
class PowerReading:
    """Power measurements of one moment.

    Attributes:
        watts: Power; None if the board does not measure it.
        counters: Energy counters by name; empty if the processor has none.
    """

    watts: float | None
    counters: Mapping[str, EnergyCounter]


def read_power(root: Path) -> PowerReading:
    return PowerReading(_channels(root / "sys/class/hwmon"), _counters(root / "sys/class/powercap"))


def _channels(folder: Path) -> float | None:
    """Returns the power of the input channel, else the sum of all channels."""
    found: dict[str, float] = {}
    for chip in sorted(folder.glob("hwmon*")):
        if text_of(chip / "name") != "ina3221":
            continue
        for label in sorted(chip.glob("in[1-3]_label")):
            number = label.name[2]
            millivolts, milliamperes = integer_of(chip / f"in{number}_input"), integer_of(chip / f"curr{number}_input")
            if millivolts is not None and milliamperes is not None:
                found[text_of(label) or f"{chip.name} {number}"] = millivolts * milliamperes / 1e6
    if _INPUT in found:
        return found[_INPUT]
    return sum(found.values()) if found else None


def _counters(folder: Path) -> dict[str, EnergyCounter]:
    found: dict[str, EnergyCounter] = {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        name = text_of(zone / "name") or ""
        used, full = integer_of(zone / "energy_uj"), integer_of(zone / "max_energy_range_uj")
        if used is not None and full and (name == "psys" or name.startswith("package")):
            found[name] = EnergyCounter(used / 1e6, full / 1e6)
    return {"psys": found["psys"]} if "psys" in found else found


class EnergyMeter:
    """Computes power and energy from readings. No clock.

    Attributes:
        joules: Energy since the first reading.
        watts: Power between the last two readings; None before the second, and if nothing is measured.
    """

    def __init__(self) -> None:
        self.joules = 0.0
        self.watts: float | None = None
        self._before: PowerReading | None = None
        self._at = 0.0

    def observe(self, reading: PowerReading, now: float) -> None:
        """Takes a reading of time ``now``, seconds, not before the last one's."""
        before, elapsed = self._before, now - self._at
        self._before, self._at = reading, now
        self.watts = reading.watts
        if before is None or elapsed <= 0:
            return
        if reading.watts is not None:
            self.joules += reading.watts * min(elapsed, _MAX_GAP_S)
            return
        used = [
            (counter.joules - before.counters[name].joules) % counter.full_joules
            for name, counter in reading.counters.items()
            if name in before.counters
        ]
        if used:
            self.joules += sum(used)
            self.watts = sum(used) / elapsed


_CONSTANT_ZONES: Final = frozenset({"PMIC-Die"})
"""Zones with a constant value: Jetson's power chip always reports 50 or 100 degrees."""

_PROCESSOR_CHIPS: Final = frozenset({"coretemp", "k10temp"})
"""Sensors of Intel and AMD processors, which may have no thermal zone."""

_PACKAGE_ZONE: Final = "x86_pkg_temp"
_HIGHEST_C: Final = 200.0
_SLOWING: Final = ("cpufreq", "devfreq", "thermal-cpufreq", "thermal-devfreq")
"""Type prefixes of cooling devices that reduce performance, unlike fans."""

_PI_THROTTLED: Final = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}
"""Bits of the present state in a Raspberry Pi's ``get_throttled``; see its documentation of vcgencmd."""


def read_zones(root: Path) -> tuple[ThermalZone, ...]:
    zones = [z for z in read_thermal(root) if z.name not in _CONSTANT_ZONES and z.celsius < _HIGHEST_C]
    if not any(zone.name == _PACKAGE_ZONE for zone in zones):
        zones += _processors(root / "sys/class/hwmon")
    return _with_unique_names(zones)


def temperatures(root: Path) -> tuple[Temperature, ...]:
    return tuple(Temperature(zone.name, zone.celsius) for zone in read_zones(root))


def read_slowdowns(root: Path) -> tuple[str, ...]:
    return (*_cooling(root / "sys/class/thermal"), *_raspberry_pi(root / "sys/devices/platform"))


def read_event_counts(root: Path) -> Mapping[str, int]:
    """Reads the counters of hardware throttling events; an increase means that the hardware throttles itself."""
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
            yield f"the kernel throttles {kind}"


def _raspberry_pi(folder: Path) -> Iterator[str]:
    for file in [*folder.glob("*/get_throttled"), *folder.glob("*/*/get_throttled")]:
        try:
            flags = int(text_of(file) or "0", 16)
        except ValueError:
            continue
        yield from (text for bit, text in _PI_THROTTLED.items() if flags >> bit & 1)


def _processors(folder: Path) -> Iterator[ThermalZone]:
    for chip in sorted(folder.glob("hwmon*"), key=lambda each: (len(each.name), each.name)):
        name, celsius = text_of(chip / "name"), _celsius(chip / "temp1_input")
        if name in _PROCESSOR_CHIPS and celsius is not None:
            yield ThermalZone(name, celsius, _celsius(chip / "temp1_max"), _celsius(chip / "temp1_crit"))


def _celsius(path: Path) -> float | None:
    thousandths = integer_of(path)
    return None if thousandths is None else thousandths / 1000


def _with_unique_names(zones: list[ThermalZone]) -> tuple[ThermalZone, ...]:
    seen: dict[str, int] = {}
    named = []
    for zone in zones:
        seen[zone.name] = number = seen.get(zone.name, 0) + 1
        named.append(zone if number == 1 else replace(zone, name=f"{zone.name} {number}"))
    return tuple(named)


_TRIGGER: Final = b"some 200000 2000000"
"""Microseconds of stall within a window; windows shorter than two seconds need privileges."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory at one moment.

    Attributes:
        headroom_bytes: Memory that can be allocated before a limit is reached.
        some_percent: Share of the last 10 seconds in which at least one task stalled on memory, per cent; None without
            PSI.
        full_percent: Share in which all tasks stalled; None without PSI.
    """

    headroom_bytes: int
    board_bytes: int
    some_percent: float | None
    full_percent: float | None


def read_pressure(root: Path) -> MemoryReading:
    """Reads memory, its limits, and the highest pressure of the board and of the cgroups that limit this process."""
    facts = read_memory(root)
    contents = [text_of(file) or "" for file in _pressure_files(root)]
    return MemoryReading(
        headroom_bytes=facts.usable_bytes,
        board_bytes=facts.board_bytes,
        some_percent=max((_average(text, "some") for text in contents if text), default=None),
        full_percent=max((_average(text, "full") for text in contents if text), default=None),
    )


def _pressure_files(root: Path) -> list[Path]:
    cgroups = {
        root / "sys/fs/cgroup" / limit.file.rpartition("/")[0] / "memory.pressure" for limit in memory_limits(root)
    }
    return [root / "proc/pressure/memory", *sorted(cgroups)]


def _average(text: str, kind: str) -> float:
    found = re.search(rf"^{kind} avg10=([0-9.]+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class PressureTrigger:
    """Waits for the kernel's notification of memory pressure, if PSI triggers are available."""

    def __init__(self, root: Path) -> None:
        self._file: int | None = None
        self._read, self._write = os.pipe()
        try:
            self._file = os.open(root / "proc/pressure/memory", os.O_RDWR | os.O_NONBLOCK)
            os.write(self._file, _TRIGGER + b"\0")
        except OSError:
            self._disarm()

    @property
    def armed(self) -> bool:
        return self._file is not None

    def wait(self, seconds: float) -> None:
        """Returns after a notification, after ``seconds``, or after ``wake``."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if self._file is not None:
            poll.register(self._file, select.POLLPRI)
        for number, event in poll.poll(seconds * 1000):
            if number == self._file and event & (select.POLLERR | select.POLLNVAL):
                self._disarm()

    def wake(self) -> None:
        os.write(self._write, b"\0")

    def close(self) -> None:
        """Closes the files; no thread may be waiting."""
        self._disarm()
        os.close(self._read)
        os.close(self._write)

    def _disarm(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
