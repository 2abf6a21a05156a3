"""Measures each op alone against what this machine can read and multiply, and prints how far it is from that.

    python -m scripts.bench.kernels
    python -m scripts.bench.kernels --threads 4 --builds avx2,avx512_vnni --json kernels.json

Attention reads the context's pages once and needs two INT8 products for every one of its own, because queries and
weights have 15 bits. A product with a matrix reads the weights once and needs one for every weight and row. Both rates
are compared with loops that only read, or only multiply, with as many threads.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.kernels.ceilings import Ceilings, measure_ceilings
from scripts.bench.kernels.loads import LOADS, Load
from scripts.bench.kernels.measure import Measurement, measure
from scripts.bench.kernels.products import PRODUCTS, ProductLoad


def table(ceilings: Ceilings, found: list[Measurement], threads: int) -> str:
    lines = [
        f"{threads} threads; at most {ceilings.bytes_per_s / 1e9:.1f} GB/s read from memory and "
        f"{ceilings.products_per_s / 1e9:.0f} G INT8 products/s",
        "",
        f"{'load':32}{'build':>13}{'us/call':>10}{'best':>10}{'GB/s':>8}{'of max':>8}{'G prod/s':>10}{'of max':>8}",
    ]
    for m in found:
        read, multiplied = m.load.bytes / m.seconds, m.load.products / m.seconds
        lines.append(
            f"{m.load.name:32}{m.build:>13}{m.seconds * 1e6:10.0f}{m.best * 1e6:10.0f}"
            f"{read / 1e9:8.1f}{read / ceilings.bytes_per_s:8.0%}"
            f"{multiplied / 1e9:10.0f}{multiplied / ceilings.products_per_s:8.0%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        "kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads that compute [%(default)s]")
    parser.add_argument("--builds", default="", help="kernel builds to compare, separated by commas [the fastest]")
    parser.add_argument("--rounds", type=int, default=9, help="turns through all loads and builds [%(default)s]")
    parser.add_argument("--only", default="", help="loads whose name holds this")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    arguments = parser.parse_args()
    configure_thread_pool(arguments.threads)
    every: list[Load | ProductLoad] = [*LOADS, *PRODUCTS]
    loads = [load for load in every if arguments.only in load.name]
    before = measure_ceilings(arguments.threads)
    found = measure(loads, arguments.builds.split(","), arguments.rounds)
    ceilings = before.best(measure_ceilings(arguments.threads))
    print(table(ceilings, found, arguments.threads))
    if arguments.json:
        figures = {"threads": arguments.threads, "ceilings": asdict(ceilings), "loads": [asdict(m) for m in found]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
