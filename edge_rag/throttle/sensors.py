"""What the board takes, where it measures it: Jetson's INA3221, processors with energy counters (powercap)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.device.probing.files import integer_of, text_of

_INPUT: Final = "VDD_IN"
"""The channel that all of a board's power comes in by, on boards that measure there."""

_LONGEST_GAP_S: Final = 60.0
"""Power is not taken to have stayed the same for longer than this."""


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """A counter of energy that begins at 0 again when it is full.

    Attributes:
        joules: What it shows.
        full_joules: Where it begins again.
    """

    joules: float
    full_joules: float


@dataclass(frozen=True, slots=True)
class PowerReading:
    """What was measured at one moment.

    Attributes:
        watts: Power, where the board measures that; else None.
        counters: Energy, by counter, where the processor counts that; else empty.
    """

    watts: float | None
    counters: Mapping[str, EnergyCounter]


def read_power(root: Path) -> PowerReading:
    """Reads what there is; a board that measures nothing gives nothing.

    Args:
        root: Where ``sys`` is.
    """
    return PowerReading(_channels(root / "sys/class/hwmon"), _counters(root / "sys/class/powercap"))


def _channels(folder: Path) -> float | None:
    """Returns the power of the input channel, else of all channels together."""
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
    """Returns the counter of the whole board if the processor has one, else one a package."""
    found: dict[str, EnergyCounter] = {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        name = text_of(zone / "name") or ""
        used, full = integer_of(zone / "energy_uj"), integer_of(zone / "max_energy_range_uj")
        if used is not None and full and (name == "psys" or name.startswith("package")):
            found[name] = EnergyCounter(used / 1e6, full / 1e6)
    return {"psys": found["psys"]} if "psys" in found else found


class EnergyMeter:
    """Makes power and energy of readings. No clock.

    Attributes:
        joules: Energy taken since the first reading.
        watts: Power between the last two readings; None before the second, and where nothing is measured.
    """

    def __init__(self) -> None:
        self.joules = 0.0
        self.watts: float | None = None
        self._before: PowerReading | None = None
        self._at = 0.0

    def observe(self, reading: PowerReading, now: float) -> None:
        """Takes a reading, at so many seconds; not before an earlier one's."""
        before, passed = self._before, now - self._at
        self._before, self._at = reading, now
        self.watts = reading.watts
        if before is None or passed <= 0:
            return
        if reading.watts is not None:
            self.joules += reading.watts * min(passed, _LONGEST_GAP_S)
            return
        taken = [
            (counter.joules - before.counters[name].joules) % counter.full_joules
            for name, counter in reading.counters.items()
            if name in before.counters
        ]
        if taken:
            self.joules += sum(taken)
            self.watts = sum(taken) / passed
