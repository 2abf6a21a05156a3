"""``python -m scripts.bench.simulation``."""

from __future__ import annotations

from scripts.bench.simulation.command import simulate

simulate(prog_name="python -m scripts.bench.simulation")
