"""What a change costs a question on an unloaded box: this checkout against another one, in turn.

    python -m scripts.bench.load.two_trees --other FOLDER [--rounds 200] [--json]

Both daemons hold the samples and are idle but for one question at a time: one to this checkout's, one to the other's,
in alternating order. FOLDER is a checkout in which scripts/test ran once, for example that of an
earlier commit. The ratio is the median of the pairs' ratios. Take it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import grpc

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from scripts.bench.harness.daemon import ingest_samples, running

QUESTIONS = (
    "How often must the pump bearings be greased?",
    "What is the rated flow of the pump?",
    "Which alarm means low oil pressure?",
    "Who has to be told before maintenance begins?",
)
_WARM_UP = 40


def ask(channel: grpc.Channel, number: int, max_tokens: int) -> tuple[float, float]:
    """Asks a question; returns the time to the first message and to the end, seconds."""
    request = rag_pb2.AskRequest(
        question=f"{QUESTIONS[number % len(QUESTIONS)]} ({number})", sampling=rag_pb2.Sampling(max_tokens=max_tokens)
    )
    started = time.perf_counter()
    arrivals = [time.perf_counter() for _ in rag_pb2_grpc.RagStub(channel).Ask(request, timeout=60)]
    return arrivals[0] - started, time.perf_counter() - started


def measure(other: Path, rounds: int) -> dict[str, float]:
    """Returns medians and ratios."""
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = Path(folder, "this", "data"), Path(folder, "other", "data")
        mine.parent.mkdir()
        theirs.parent.mkdir()
        with running(mine) as ours, running(theirs, tree=other) as before:
            times: dict[str, list[tuple[float, float]]] = {"this": [], "other": []}
            sides = {"this": ours.address, "other": before.address}
            for address in sides.values():
                ingest_samples(address)
            channels = {side: grpc.insecure_channel(address) for side, address in sides.items()}
            for number in range(-_WARM_UP, rounds):
                for side in sorted(sides, reverse=number % 2 == 0):
                    taken = ask(channels[side], number, 64)
                    if number >= 0:
                        times[side].append(taken)
            for channel in channels.values():
                channel.close()
    pairs = list(zip(times["this"], times["other"], strict=True))
    return {
        "questions": rounds,
        "this_median_ms": 1e3 * median(whole for _, whole in times["this"]),
        "other_median_ms": 1e3 * median(whole for _, whole in times["other"]),
        "ratio": median(this[1] / that[1] for this, that in pairs),
        "first_message_ratio": median(this[0] / that[0] for this, that in pairs),
    }


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=200, help="questions to each side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (options.other / ".venv" / "bin" / "python").exists():
        parser.error(f"{options.other} has no .venv; run scripts/test there once")
    figures = measure(options.other.resolve(), options.rounds)
    print(json.dumps(figures) if options.json else "\n".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
