"""What borrowing a faster machine gives: throughput and latency of a slow board and of the other machine, each alone,
and of the board that borrows.

    python -m scripts.models.make_random_model qwen2.5-0.5b --out build/bench/qwen2.5-0.5b
    python -m scripts.bench.offload --model build/bench/qwen2.5-0.5b/int4 [--share 0.4] [--delay-ms 5] [--rate-mbit 100]

Two daemons, each on a processor of its own, the board with a share of its processor (a cgroup's quota) and one sequence
at a time, the other machine with all of it and several. The clients, who take the rest of the board's processor, ask
one question after the other; an answer counts if it came whole and within the deadline. Where the script may (root,
`ip`, TUN devices), each daemon has a network namespace, with delay, loss and a bound on the rate between them;
elsewhere both are on loopback. What it was, it says. The loads:

    board alone       as many clients as keep it busy
    lender alone      the same, asked directly: no board has any work with it
    overflow          the board, asked by as many as keep both busy; what it would be late with is written elsewhere
    without offload   the board, asked by as many, alone
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from scripts.bench.harness.daemon import SMALL_GENERATOR, running
from scripts.bench.offload.load import Asking, Load, fill, load
from scripts.bench.offload.machines import Pair, pair, pinned, run

MODEL: Final = "measured"


@contextmanager
def daemon(prefix: Sequence[str], data: Path, config: str, listen: str | None = None) -> Iterator[str]:
    """Runs a daemon with the samples; yields the address of its socket."""
    with running(data, f"threads = 1\n{config}", listen=listen, prefix=prefix) as started:
        fill(started.local)
        yield started.local


def board_config(mode: str, model: str, folder: Path, address: str) -> str:
    """Returns the settings of a board that runs one sequence at a time."""
    config = f"{model}[generator]\nmax_slots = 1\n[retriever]\ncandidates = 2\n"
    if mode == "never":
        return config
    return f"""{config}[offload]
mode = "{mode}"
[[offload.remotes]]
name = "lender"
address = "{address}:7422"
authority = "{folder}/lender/tls/ca.pem"
credential = "{folder}/peer.token"
"""


def lender_config(model: str, folder: Path, address: str) -> str:
    """Makes certificate and token of the other machine; returns its settings."""
    cli, place = (sys.executable, "-m", "edge_rag.cli.main"), ("--data-dir", str(folder / "lender"))
    run(*cli, "tls", "init", "--host", address, *place)
    (folder / "peer.token").write_text(run(*cli, "token", "create", "--name", "board", "--roles", "peer", *place))
    return f"[tls]\nalways = true\n{model}[generator]\nmax_slots = 8\n[retriever]\ncandidates = 2\n"


def added(model: Path, folder: Path) -> str:
    """Adds a model for all daemons; returns the settings that choose it."""
    place = folder / "lender"
    run(
        sys.executable,
        "-m",
        "edge_rag.cli.main",
        "models",
        "add",
        str(model),
        "--name",
        MODEL,
        "--data-dir",
        str(place),
    )
    for mode in ("never", "overflow"):
        shutil.copytree(place / "models", folder / f"board-{mode}" / "models")
    return f'[models]\ngenerator = "{MODEL}"\n'


def measure(wanted: argparse.Namespace, machines: Pair, folder: Path) -> tuple[Load, ...]:
    """Runs all loads, in turn."""
    asking = Asking(wanted.warm, wanted.seconds, wanted.deadline_s, wanted.characters)
    few, many = wanted.board_clients, wanted.lender_clients
    model = added(wanted.model, folder)
    with daemon(
        machines.lender, folder / "lender", lender_config(model, folder, machines.address), f"{machines.address}:7422"
    ) as lender:

        def board(name: str, mode: str, clients: int) -> Load:
            config = board_config(mode, model, folder, machines.address)
            with daemon(machines.board, folder / f"board-{mode}", config) as address:
                return load(name, address, clients, asking)

        alone = board("board alone", "never", few)
        # As many as keep both busy: the board has others wait as long as they will be in time.
        together = few + many + round(asking.deadline_s * alone.goodput)
        return (
            alone,
            load("lender alone", lender, many, asking),
            board("overflow", "overflow", together),
            board("without offload", "never", together),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SMALL_GENERATOR, help="folder of the model that both have")
    parser.add_argument("--seconds", type=float, default=60, help="measured time of each load")
    parser.add_argument("--warm", type=float, default=10, help="time before it, in which speeds are learnt")
    parser.add_argument("--share", type=float, default=0.4, help="of its processor that the board has")
    parser.add_argument("--deadline-s", type=float, default=15)
    parser.add_argument("--characters", type=int, default=160, help="length of every answer")
    parser.add_argument("--board-clients", type=int, default=2)
    parser.add_argument("--lender-clients", type=int, default=12)
    parser.add_argument("--delay-ms", type=float, default=5, help="there and back")
    parser.add_argument("--loss-percent", type=float, default=0.1, help="each way")
    parser.add_argument("--rate-mbit", type=float, default=100, help="each way")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    if pinned(0):
        os.sched_setaffinity(0, {0})  # the clients; daemons are put where they belong
    with (
        tempfile.TemporaryDirectory() as name,
        pair(wanted.share, wanted.delay_ms, wanted.loss_percent, wanted.rate_mbit) as machines,
    ):
        loads = measure(wanted, machines, Path(name))
    if wanted.json:
        print(json.dumps({"machines": machines.described, "loads": [asdict(each) for each in loads]}))
        return
    print(f"{machines.described}; deadline {wanted.deadline_s:g} s, answers of {wanted.characters} characters")
    print(f"{'load':<16} clients   good/s  late      p50      p99  first text p50  elsewhere")
    for each in loads:
        print(
            f"{each.name:<16} {each.clients:7d}  {each.goodput:7.2f}  {each.late:4d}  {each.p50_s:5.2f} s"
            f"  {each.p99_s:5.2f} s  {each.first_text_p50_s:12.2f} s  {each.elsewhere:9d}"
        )
        if each.decisions:
            print(f"    {each.decisions}")
    both = loads[0].goodput + loads[1].goodput
    print(f"overflow reaches {100 * loads[2].goodput / both:.0f}% of the sum of both ({both:.2f}/s)")


if __name__ == "__main__":
    main()
