"""What borrowing a faster machine gives: throughput and latency of a slow board alone, of the other machine, of both.

    python -m scripts.bench.offload [--seconds 40] [--delay-ms 5] [--loss-percent 0.1] [--rate-mbit 100]

Two daemons with the default model, each on a processor of its own: a board that runs one sequence at a time, and a
machine that runs several. Where the script may make network namespaces (root, `ip`, `tc`), each has its own, with
delay, loss and a bound on the rate between them if the kernel has netem; elsewhere both are on loopback. What it was,
it says. Clients ask one question after the other; an answer counts if it came whole and within the deadline. The loads:
the board by itself, all written elsewhere, overflow with as many clients as both before, and the board by itself with
these.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from edge_rag.client import Client
from edge_rag.client.failures import ClientError
from edge_rag.client.requests import AskOptions
from edge_rag.core.answer import Finished
from edge_rag.core.collection import CollectionSettings
from edge_rag.core.decision import AuditEntry, DecisionKind
from edge_rag.core.offload import OffloadRule
from edge_rag.core.query import AnswerMode, Priority

SAMPLES: Final = Path(__file__).parents[2] / "deploy" / "samples"
BOARD, LENDER = "10.231.77.1", "10.231.77.2"
QUESTIONS: Final = (
    "How often must the pump bearings be greased?",
    "What do I do when the gas alarm sounds?",
    "What is the usual dose of hypochlorite?",
    "How is a water sample taken?",
)

_OURS: Final = frozenset({DecisionKind.PLACED, DecisionKind.HEDGED, DecisionKind.TAKEN_OVER, DecisionKind.BREAKER})


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked of a daemon, and what came of it.

    Attributes:
        name: Which load.
        clients: Clients that asked at once.
        seconds: How long they did.
        good: Answers that came whole and in time.
        late: Those that did not.
        p50_s: Median time of the good ones, seconds.
        p99_s: 99th percentile.
        first_text_p50_s: Median time to the first text.
        elsewhere: Answers that the other machine finished, those of the warm-up included.
        failures: Times that it was given up.
        decisions: What was decided about where to compute, by kind, of the latest ones that are kept.
    """

    name: str
    clients: int
    seconds: float
    good: int
    late: int
    p50_s: float
    p99_s: float
    first_text_p50_s: float
    elsewhere: int = 0
    failures: int = 0
    decisions: str = ""

    @property
    def goodput(self) -> float:
        """Good answers a second."""
        return self.good / self.seconds


@dataclass(frozen=True, slots=True)
class Link:
    """How the two machines are connected.

    Attributes:
        board: Command prefix that runs something on the board; empty on loopback.
        lender: The same on the other machine.
        address: Address of the other machine.
        described: For people.
    """

    board: tuple[str, ...]
    lender: tuple[str, ...]
    address: str
    described: str


@contextmanager
def link(delay_ms: float, loss_percent: float, rate_mbit: float) -> Iterator[Link]:
    """Connects two machines: network namespaces where that may be done, else loopback."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        yield Link((), (), "127.0.0.1", "loopback, without delay or loss (network namespaces need root, ip and tc)")
        return
    mine, other = (f"edge-rag-{os.getpid()}-{side}" for side in ("board", "lender"))
    try:
        for name in (mine, other):
            run("ip", "netns", "add", name)
        run("ip", "link", "add", "veth0", "netns", mine, "type", "veth", "peer", "name", "veth0", "netns", other)
        for name, address in ((mine, BOARD), (other, LENDER)):
            inside = ("ip", "netns", "exec", name)
            run(*inside, "ip", "address", "add", f"{address}/24", "dev", "veth0")
            for device in ("lo", "veth0"):
                run(*inside, "ip", "link", "set", device, "up")
        # Half of the delay each way.
        netem = ("netem", "delay", f"{delay_ms / 2}ms", "loss", f"{loss_percent}%", "rate", f"{rate_mbit}mbit")
        shaped = all(
            subprocess.run(
                ("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "veth0", "root", *netem),
                check=False,
                stderr=subprocess.DEVNULL,
            ).returncode
            == 0
            for name in (mine, other)
        )
        described = "two network namespaces; the kernel has no netem, so without delay, loss or a bound on the rate"
        if shaped:
            described = f"{delay_ms:g} ms there and back, {loss_percent:g}% loss each way, {rate_mbit:g} Mbit/s"
        exec_in = ("ip", "netns", "exec")
        yield Link((*exec_in, mine), (*exec_in, other), LENDER, described)
    finally:
        for name in (mine, other):
            subprocess.run(("ip", "netns", "delete", name), check=False, stderr=subprocess.DEVNULL)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def daemon(prefix: Sequence[str], processor: int, data: Path, config: str) -> Iterator[None]:
    """Runs a daemon on one processor until the end of the block."""
    file = data.with_suffix(".toml")
    file.write_text(config)
    pinned = ("taskset", "-c", str(processor)) if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else ()
    command = (*prefix, *pinned, sys.executable, "-m", "edge_rag.cli.main", "serve", "--config", str(file))
    with data.with_suffix(".log").open("w") as log:
        process = subprocess.Popen((*command, "--data-dir", str(data)), stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        if not any("serving on" in line for line in process.stdout):
            raise SystemExit(f"the daemon did not start:\n{data.with_suffix('.log').read_text()}")
        yield
    finally:
        process.terminate()
        process.wait(60)


def board_config(mode: str, connection: Link, folder: Path) -> str:
    """Returns the settings of a board that runs one sequence at a time."""
    offload = f"""
[offload]
mode = "{mode}"
[[offload.remotes]]
name = "lender"
address = "{connection.address}:7422"
authority = "{folder}/lender/tls/ca.pem"
credential = "{folder}/peer.token"
"""
    common = 'listen = "127.0.0.1:7421"\nthreads = 1\n[generator]\nmax_slots = 1\n[retriever]\ncandidates = 2\n'
    return common + ("" if mode == "never" else offload)


def prepare_lender(folder: Path, address: str) -> str:
    """Makes certificate and token of the other machine; returns its settings."""
    cli, place = (sys.executable, "-m", "edge_rag.cli.main"), ("--data-dir", str(folder / "lender"))
    run(*cli, "tls", "init", "--host", address, *place)
    (folder / "peer.token").write_text(run(*cli, "token", "create", "--name", "board", "--roles", "peer", *place))
    return f'listen = "{address}:7422"\nthreads = 1\n[tls]\nalways = true\n[generator]\nmax_slots = 8\n'


def drive(name: str, clients: int, seconds: float, deadline_s: float, characters: int) -> Load:
    """Asks from so many clients at once, one question after the other each."""
    good: list[tuple[float, float]] = []
    late, ends, lock = 0, time.monotonic() + seconds, threading.Lock()

    def one_client(number: int) -> None:
        nonlocal late
        with Client("127.0.0.1:7421", timeout_s=deadline_s) as client:
            count = number
            while time.monotonic() < ends:
                # So long an answer in any case: what the model has to say differs in length.
                options = AskOptions(
                    mode=AnswerMode.FREE,
                    regex=f"[a-z ]{{{characters}}}",
                    max_tokens=characters,
                    passages=1,
                    priority=Priority.INTERACTIVE,
                )
                began = time.monotonic()
                try:
                    last = list(client.ask(QUESTIONS[count % len(QUESTIONS)], options))[-1]
                    assert isinstance(last, Finished)
                    with lock:
                        good.append((time.monotonic() - began, last.first_token_s or 0.0))
                except ClientError:
                    with lock:
                        late += 1
                count += 1

    threads = [threading.Thread(target=one_client, args=(number,)) for number in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = sorted(each for each, _ in good) or [float("nan")]
    firsts = [first for _, first in good] or [float("nan")]
    p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
    elapsed = time.monotonic() - began
    return Load(name, clients, elapsed, len(good), late, statistics.median(took), p99, statistics.median(firsts))


def measure(wanted: argparse.Namespace, name: str, mode: str, clients: int, connection: Link, folder: Path) -> Load:
    """Starts a board in a mode and loads it, from inside the board's network."""
    data = folder / f"board-{mode}"
    with daemon(connection.board, 0, data, board_config(mode, connection, folder)):
        arguments = ["--drive", name, "--clients", str(clients)]
        for option in ("seconds", "deadline_s", "characters"):
            arguments += [f"--{option.replace('_', '-')}", str(getattr(wanted, option))]
        made = run(*connection.board, sys.executable, "-m", "scripts.bench.offload", *arguments)
        return Load(**json.loads(made.splitlines()[-1]))


def fill() -> None:
    """Ingests the samples and allows them to leave; asks a little, so that speeds are known."""
    with Client("127.0.0.1:7421") as client:
        for path in sorted(SAMPLES.iterdir()):
            if path.suffix in (".md", ".txt"):
                client.ingest(path.name, lambda path=path: path.open("rb"))  # type: ignore[misc]
        client.update_collection("default", CollectionSettings(offload=OffloadRule.ALLOWED), {"offload"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--deadline-s", type=float, default=12)
    parser.add_argument("--characters", type=int, default=300, help="length of every answer")
    parser.add_argument("--board-clients", type=int, default=2)
    parser.add_argument("--lender-clients", type=int, default=8)
    parser.add_argument("--delay-ms", type=float, default=5)
    parser.add_argument("--loss-percent", type=float, default=0.1)
    parser.add_argument("--rate-mbit", type=float, default=100)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.drive is not None:
        fill()
        drive("warm", wanted.clients, 0.2 * wanted.seconds, wanted.deadline_s, wanted.characters)
        load = drive(wanted.drive, wanted.clients, wanted.seconds, wanted.deadline_s, wanted.characters)
        with Client("127.0.0.1:7421") as client:
            remotes = client.status().remotes
            entries = [each.decision for each in client.decisions() if isinstance(each, AuditEntry)]
        kinds = Counter(
            each.reason if each.kind is DecisionKind.PLACED else each.kind.value
            for each in entries
            if each.kind in _OURS
        )
        load = replace(
            load,
            elsewhere=sum(remote.answers for remote in remotes),
            failures=sum(remote.failures for remote in remotes),
            decisions=", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        )
        print(json.dumps(asdict(load)))
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        connection = stack.enter_context(link(wanted.delay_ms, wanted.loss_percent, wanted.rate_mbit))
        config = prepare_lender(folder, connection.address)
        stack.enter_context(daemon(connection.lender, 1, folder / "lender", config))
        few, many = wanted.board_clients, wanted.lender_clients
        loads = [
            measure(wanted, "board alone", "never", few, connection, folder),
            measure(wanted, "all elsewhere", "prefer-remote", many, connection, folder),
            measure(wanted, "overflow", "overflow", few + many, connection, folder),
            measure(wanted, "board alone, same load", "never", few + many, connection, folder),
        ]
    if wanted.json:
        print(json.dumps({"link": connection.described, "loads": [asdict(load) for load in loads]}))
        return
    print(f"link: {connection.described}; deadline {wanted.deadline_s:g} s, answers of {wanted.characters} characters")
    print(f"{'load':<24} clients   good/s  late   p50      p99      first text p50  elsewhere")
    for load in loads:
        print(
            f"{load.name:<24} {load.clients:7d}  {load.goodput:7.2f}  {load.late:4d}  {load.p50_s:6.2f} s"
            f" {load.p99_s:6.2f} s  {load.first_text_p50_s:6.2f} s  {load.elsewhere:9d}"
        )
        if load.decisions:
            print(f"  {load.decisions}")
    both = loads[0].goodput + loads[1].goodput
    print(f"overflow reaches {100 * loads[2].goodput / both:.0f}% of the sum of both ({both:.2f}/s)")


if __name__ == "__main__":
    main()
