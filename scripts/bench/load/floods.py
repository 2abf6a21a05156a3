"""What well-behaved clients notice of one that is not: their answers' times before and during each attack.

    python -m scripts.bench.load.floods [--seconds 20] [--only pings,resets] [--shared] [--json]

A daemon of its own serves the samples with its defaults. Two clients ask one question after the other; then they do
while an attacker from another loopback address does one thing without end. The attacker has the last processor to
itself and the others have the rest, as if it were another machine; with --shared all have all, and what the attacker's
own work takes from the others counts as well. Take the figures on a machine that does nothing else. Exits with 1 where
an answer went missing or was another one, where the daemon's memory grew by more than 64 MiB, or the others' 99th
percentile by a fifth.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

import h2.exceptions

from edge_rag.api.v1 import rag_pb2
from scripts.bench.harness.daemon import SMALL_GENERATOR, Daemon, daemon_with_samples
from scripts.bench.harness.figures import percentile
from scripts.bench.harness.processors import divided, work_on
from scripts.bench.load.clients import QUESTIONS, clients
from scripts.bench.load.raw_connection import ASK, RawConnection

ATTACKER = "127.0.0.66"
MOST_SLOWER = 1.2
MOST_GROWTH_MIB = 64
_QUESTION = rag_pb2.AskRequest(question=QUESTIONS[0]).SerializeToString()
_LARGE = 17 << 20

Attack = Callable[[str, threading.Event], str]
"""Attacks an address until told to stop; returns what became of it."""


def repeat(address: str, done: threading.Event, once: Callable[[RawConnection], str], window: int | None = None) -> str:
    """Does something over one connection after the other, and counts how it went."""
    seen: Counter[str] = Counter()
    while not done.is_set():
        try:
            with RawConnection(address, window=window, source=ATTACKER) as connection:
                outcome = once(connection)
                seen[f"goodbye {connection.goodbye[1]}" if connection.goodbye else outcome] += 1
        except h2.exceptions.ProtocolError:
            seen["goodbye"] += 1
        except OSError:
            seen["cut off"] += 1
    return ", ".join(f"{count} times {what}" for what, count in seen.most_common())


def pings(address: str, done: threading.Event) -> str:
    """Pings as fast as they are taken."""

    def once(connection: RawConnection) -> str:
        while not (connection.closed or connection.goodbye or done.is_set()):
            connection.ping()
            connection.read(0.001)
        return "over"

    return repeat(address, done, once)


def resets(address: str, done: threading.Event) -> str:
    """Opens calls and gives them up at once (CVE-2023-44487)."""

    def once(connection: RawConnection) -> str:
        for _ in range(2000):
            if done.is_set():
                break
            connection.reset(connection.call(ASK, _QUESTION))
        return "over"

    return repeat(address, done, once)


def streams(address: str, done: threading.Event) -> str:
    """Opens as many calls as it can, whose requests never come."""

    def once(connection: RawConnection) -> str:
        opened = [connection.call(ASK) for _ in range(400)]
        until = time.monotonic() + 5
        while not (connection.closed or done.is_set()) and time.monotonic() < until:
            connection.read(0.2)
        refused = sum(connection.streams[each].headers.get("grpc-status") == "8" for each in opened)
        return f"{refused // 100}00 and more of 400 refused"

    return repeat(address, done, once)


def metadata(address: str, done: threading.Event) -> str:
    """Sends more metadata than is taken."""

    def once(connection: RawConnection) -> str:
        for _ in range(20):
            stream = connection.call(ASK, _QUESTION, more=(("note", "x" * 15_000), ("more", "x" * 15_000)))
            ended = connection.read_until_ended(stream, 5)
            if connection.closed:
                break
        return f"status {ended.headers.get('grpc-status', '-')}"

    return repeat(address, done, once)


def messages(address: str, done: threading.Event) -> str:
    """Announces a message larger than is taken, and sends as much of it as it may."""

    def once(connection: RawConnection) -> str:
        stream = connection.call(ASK, end=False)
        connection.send_part(stream, _LARGE, b"x" * 16_000)
        return f"status {connection.read_until_ended(stream, 5).headers.get('grpc-status', '-')}"

    return repeat(address, done, once)


def half_open(address: str, done: threading.Event) -> str:
    """Opens connections and never speaks."""
    host, _, port = address.rpartition(":")
    opened: list[socket.socket] = []
    ended = 0
    while not done.wait(0.01):
        with contextlib.suppress(OSError):
            opened.append(socket.create_connection((host, int(port)), 1, (ATTACKER, 0)))
            opened[-1].setblocking(False)
        for each in list(opened):
            with contextlib.suppress(BlockingIOError):
                try:
                    over = each.recv(1 << 16) == b""
                except ConnectionError:
                    over = True
                if over:
                    opened.remove(each)
                    each.close()
                    ended += 1
    left = len(opened)
    for each in opened:
        each.close()
    return f"{ended} connections closed, {left} left"


def unread(address: str, done: threading.Event) -> str:
    """Asks for long answers and reads none of them."""
    request = rag_pb2.AskRequest(
        question=QUESTIONS[0],
        mode=rag_pb2.ANSWER_MODE_FREE,
        regex="[a-z ]{1000}",
        sampling=rag_pb2.Sampling(max_tokens=1000),
    ).SerializeToString()

    def once(connection: RawConnection) -> str:
        for _ in range(4):
            connection.call(ASK, request)
        while not (connection.closed or done.is_set()):
            connection.read(0.2)
        return "over"

    return repeat(address, done, once, window=100)


ATTACKS: dict[str, Attack] = {
    "pings": pings,
    "resets": resets,
    "streams": streams,
    "metadata": metadata,
    "messages": messages,
    "half-open": half_open,
    "unread": unread,
}


@dataclass(frozen=True)
class Outcome:
    """What an attack did.

    Attributes:
        attack: Its name.
        before_p50_ms: Median time of the others' answers before it.
        before_p99_ms: 99th percentile of them.
        during_p50_ms: The same during it.
        during_p99_ms: The same during it.
        wrong: Answers of the others that were missing or other ones.
        growth_mib: By how much the daemon's memory grew.
        offender: What became of the attacker.
    """

    attack: str
    before_p50_ms: float
    before_p99_ms: float
    during_p50_ms: float
    during_p99_ms: float
    wrong: int
    growth_mib: float
    offender: str

    @property
    def kept(self) -> bool:
        """Whether the bounds were kept."""
        slower = self.during_p99_ms / self.before_p99_ms
        return not self.wrong and slower < MOST_SLOWER and self.growth_mib < MOST_GROWTH_MIB


def asked(there: Daemon, seconds: float) -> tuple[list[float], list[str]]:
    """How long each answer took, seconds, and what it was; a failure is an empty one."""
    processors = frozenset(there.process.cpu_affinity())
    with clients(there.address, seconds, 60, at_once=2, processors=processors) as asking:
        ends = asking.ends()
    return [end.took_s for end in ends], [end.text if end.status == "OK" else "" for end in ends]


def under(attack: Attack, there: Daemon, seconds: float, known: set[str], name: str) -> Outcome:
    """Measures the others before and during an attack."""
    before, _ = asked(there, seconds)
    memory = there.process.memory_info().rss
    done = threading.Event()
    became: list[str] = []
    attacking = threading.Thread(target=lambda: became.append(attack(there.address, done)))
    attacking.start()
    try:
        during, texts = asked(there, seconds)
        growth = (there.process.memory_info().rss - memory) / (1 << 20)
    finally:
        done.set()
        attacking.join()
    return Outcome(
        name,
        1000 * percentile(before, 0.5),
        1000 * percentile(before, 0.99),
        1000 * percentile(during, 0.5),
        1000 * percentile(during, 0.99),
        sum(text not in known for text in texts),
        growth,
        became[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="each measurement, seconds (default: 20)")
    parser.add_argument("--only", default=",".join(ATTACKS), help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--json", action="store_true", help="print a line of JSON an attack")
    parser.add_argument("--shared", action="store_true", help="the attacker works on the others' processors too")
    wanted = parser.parse_args()
    chosen = wanted.only.split(",")
    if unknown := [name for name in chosen if name not in ATTACKS]:
        parser.error(f"--only: {', '.join(unknown)}: known are {', '.join(ATTACKS)}")
    kept = True
    processors = divided()
    if not wanted.shared:
        work_on(processors.senders)
    with daemon_with_samples(
        processors=None if wanted.shared else processors.daemon, generator=SMALL_GENERATOR
    ) as there:
        _, texts = asked(there, 10)
        known = {text for text in texts if text}
        for name in chosen:
            outcome = under(ATTACKS[name], there, wanted.seconds, known, name)
            kept &= outcome.kept
            if wanted.json:
                print(json.dumps(asdict(outcome)), flush=True)
                continue
            print(
                f"{name:10} p50 {outcome.before_p50_ms:5.0f} -> {outcome.during_p50_ms:5.0f} ms"
                f"   p99 {outcome.before_p99_ms:5.0f} -> {outcome.during_p99_ms:5.0f} ms"
                f"   wrong {outcome.wrong}   memory {outcome.growth_mib:+.0f} MiB"
                f"   {'kept' if outcome.kept else 'NOT KEPT'}   offender: {outcome.offender}",
                flush=True,
            )
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
