#!/usr/bin/env python3
"""Trains the quoting model from scratch; ``--help`` says how. Needs the ``convert`` extra."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# Read when torch is imported: threads that wait for each other sleep instead of burning what others could use.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if __name__ == "__main__":
    from scripts.training.command import train_quoter

    train_quoter()
