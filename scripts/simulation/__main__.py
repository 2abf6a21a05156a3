"""``python -m scripts.simulation``."""

from __future__ import annotations

from scripts.simulation.command import simulate

simulate(prog_name="scripts/simulate")
