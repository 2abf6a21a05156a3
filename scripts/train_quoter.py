#!/usr/bin/env python3
"""Trains the quoting model from scratch; ``--help`` says how. Needs the ``convert`` extra."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.training.command import main

if __name__ == "__main__":
    main()
