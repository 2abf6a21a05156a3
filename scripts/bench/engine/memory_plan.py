"""Compares the memory plan with what a daemon really has resident under load.

    python -m scripts.bench.engine.memory_plan [--seconds 60] [--clients 16] [--config FILE]

A daemon of its own takes the sample documents and a text long enough for its indexes to matter, and answers questions
of many clients in every mode that the box has, each about another part of the text, so that batches, KV pages and
caches fill. Prints the plan as the daemon logged it, and the most that daemon and document reader had resident
meanwhile: memory of their own, and pages of files, which the kernel can take back. Fails where that is more than was
planned.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from edge_rag.client import AskOptions, Client, ClientError
from edge_rag.core.placement import ModelStage
from edge_rag.core.query import AnswerMode
from scripts.bench.harness.daemon import running

ROOT = Path(__file__).parents[3]
_MIB = 1 << 20
_INTERVAL_S = 0.2
_PARAGRAPHS = 4000


@dataclass
class Resident:
    """The most that was resident of a process, bytes.

    Attributes:
        own: Memory of its own.
        files: Pages of files, libraries and weights among them.
    """

    own: int = 0
    files: int = 0

    def take(self, process: psutil.Process) -> None:
        """Looks at a process; one that is gone has nothing."""
        try:
            memory = process.memory_info()
        except psutil.Error:
            return
        self.own = max(self.own, memory.rss - memory.shared)
        self.files = max(self.files, memory.shared)


def ingest(address: str, folder: Path) -> None:
    """Hands over the samples and a long text."""
    text = folder / "valves.txt"
    text.write_text(
        "\n\n".join(
            f"Valve {n} of line {n % 97} is closed before its seal is changed, and opened after {n % 60 + 1} minutes. "
            f"Its torque is {n % 40 + 10} newton metres, and its spare part has the number {n * 7919 % 100_000}."
            for n in range(_PARAGRAPHS)
        )
    )
    command = [sys.executable, "-m", "edge_rag.cli.main", "ingest", "--server", address]
    subprocess.run([*command, str(ROOT / "deploy" / "samples"), str(text)], check=True, capture_output=True)


def ask_until(address: str, end_s: float, seed: int, modes: Sequence[AnswerMode]) -> tuple[int, int]:
    """Asks one question after the other; returns how many were answered, and how many refused."""
    choose = random.Random(seed)
    answered = refused = 0
    with Client(address, timeout_s=120) as client:
        while time.monotonic() < end_s:
            question = f"What is the torque of valve {choose.randrange(_PARAGRAPHS)}, and when is its seal changed?"
            try:
                for _ in client.ask(question, AskOptions(mode=choose.choice(modes))):
                    pass
                answered += 1
            except ClientError:
                refused += 1
    return answered, refused


def plan_of(log: str) -> dict[str, int]:
    """Returns the uses of memory that a daemon logged, MiB by name."""
    line = next(line for line in log.splitlines() if "uses" in line and "planned_mib" in line)
    said: dict[str, int] = json.loads(line)["uses"]
    return said


def main() -> int:
    """Measures; returns 1 where more was resident than planned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--config", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = "" if arguments.config is None else arguments.config.read_text(encoding="utf-8")
        with running(folder / "data", config, variables={"EDGE_RAG_LOG__FORMAT": "json"}) as daemon:
            address, watched, reader = daemon.address, daemon.process, Resident()
            whole, done = Resident(), threading.Event()

            def watch() -> None:
                while not done.wait(_INTERVAL_S):
                    whole.take(watched)
                    for child in watched.children():
                        reader.take(child)

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                ingest(address, folder)
                with Client(address) as client:
                    writes = any(model.placement.stage is ModelStage.GENERATOR for model in client.status().models)
                modes = list(AnswerMode) if writes else [AnswerMode.QUOTE]
                end_s = time.monotonic() + arguments.seconds
                with ThreadPoolExecutor(arguments.clients) as pool:
                    asked = [pool.submit(ask_until, address, end_s, seed, modes) for seed in range(arguments.clients)]
                    counts = [each.result() for each in asked]
                with Client(address) as client:
                    engine = client.status().engine
            finally:
                done.set()
                watcher.join()
        uses = plan_of(daemon.log.read_text())
    planned = sum(uses.values())
    print("planned, MiB")
    for use, mib in uses.items():
        print(f"  {use:<22} {mib:>6}")
    print(f"  {'together':<22} {planned:>6}")
    own, files = whole.own // _MIB, whole.files // _MIB
    print(f"resident at most, MiB, {sum(a for a, _ in counts)} answers, {sum(r for _, r in counts)} refused")
    print(f"  {'daemon, own':<22} {own:>6}\n  {'daemon, files':<22} {files:>6}")
    print(f"  {'document reader, own':<22} {reader.own // _MIB:>6}")
    resident = own + files + reader.own // _MIB
    print(f"  {'together':<22} {resident:>6}   {resident / planned:.0%} of the plan")
    print(f"KV pages: {engine.pages}, {engine.kv_bytes // _MIB} MiB; prefilled {engine.prefill_tokens} tokens")
    return 0 if resident <= planned else 1


if __name__ == "__main__":
    raise SystemExit(main())
