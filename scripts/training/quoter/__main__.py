"""Trains the quoting model from scratch; ``--help`` says how. Needs the ``convert`` extra."""

from __future__ import annotations

import os

# Read when torch is imported: threads that wait for each other sleep instead of burning what others could use.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if __name__ == "__main__":
    from scripts.training.quoter.command import train_quoter

    train_quoter()
