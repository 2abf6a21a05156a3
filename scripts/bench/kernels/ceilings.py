"""This machine's limits, from a small program that is compiled for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("ceilings.cpp")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that all threads together reach.

    Attributes:
        bytes_per_s: Read from memory.
        products_per_s: Of 8-bit integers (16-bit ones without dot-product instructions), multiplied and summed.
    """

    bytes_per_s: float
    products_per_s: float

    def best(self, other: Ceilings) -> Ceilings:
        return Ceilings(max(self.bytes_per_s, other.bytes_per_s), max(self.products_per_s, other.products_per_s))


def measure_ceilings(threads: int) -> Ceilings:
    """Compiles and runs the program; exits with a message where there is no C++ compiler."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None:
        sys.exit("no C++ compiler: apt-get install g++")
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "ceilings"
        flags = ["-std=c++17", "-O3", "-march=native", "-pthread"]
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(program)], check=True)
        done = subprocess.run([str(program), str(threads)], check=True, capture_output=True, text=True)
    bytes_per_s, products_per_s = map(float, done.stdout.split())
    return Ceilings(bytes_per_s, products_per_s)
