"""What HTTP costs beside gRPC: the same questions over both, in turn, in one run of one daemon.

    python -m scripts.bench.http.cost [--rounds 200] [--clients 32] [--generator FOLDER] [--json]

First text: one question at a time, streamed, over gRPC and over HTTP in alternating order, quoted and written by the
generator; medians, and the median of the pairs' differences. Throughput: that many clients, each with one connection,
ask one question after another over one of both, in turns. The daemon's own processor time for a question does not
depend on what else the machine does.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grpc

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from scripts.bench.harness.checkouts import in_turn
from scripts.bench.harness.command import SMALL_GENERATOR, make_parser, print_json
from scripts.bench.harness.daemon import Daemon, daemon_with_samples

QUESTIONS = (
    "How often must the pump bearings be greased?",
    "What do I do when the gas alarm sounds?",
    "What is the usual dose of hypochlorite?",
    "Which gearbox oil is used?",
    "How is a water sample taken?",
)
MODES = {"quote": rag_pb2.ANSWER_MODE_QUOTE, "free": rag_pb2.ANSWER_MODE_FREE}
TOKENS = 64
HTTP = '\n[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
_WARM_UP = 20
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Answered:
    """When parts of an answer came, seconds from sending the question."""

    text_s: float
    end_s: float


Asking = Callable[[str, str], Answered]
"""Asks a question in a mode."""


class OverGrpc:
    """Asks over one connection."""

    def __init__(self, daemon: Daemon) -> None:
        self._channel = grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._stub = rag_pb2_grpc.RagStub(self._channel)

    def ask(self, question: str, mode: str) -> Answered:
        sampling = rag_pb2.Sampling(max_tokens=TOKENS)
        request = rag_pb2.AskRequest(question=question, mode=MODES[mode], sampling=sampling)
        began = time.perf_counter()
        text = 0.0
        for event in self._stub.Ask(request, timeout=_TIMEOUT_S):
            if not text and event.HasField("text"):
                text = time.perf_counter() - began
        return Answered(text, time.perf_counter() - began)

    def close(self) -> None:
        self._channel.close()


class OverHttp:
    """Asks over one connection, and looks at what comes as little as gRPC's client does in Python."""

    def __init__(self, daemon: Daemon) -> None:
        host, _, port = daemon.http.removeprefix("http://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._host = host

    def ask(self, question: str, mode: str) -> Answered:
        body = {
            "model": "edge-rag/default",
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "max_tokens": TOKENS,
            "edge_rag": {"mode": mode},
        }
        sent = json.dumps(body)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        began = time.perf_counter()
        self._socket.sendall(f"{head}content-length: {len(sent)}\r\n\r\n{sent}".encode())
        received = b""
        text = 0.0
        while not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = self._socket.recv(1 << 16)
            assert piece, received
            received += piece
            if not text and _TEXT.search(received):
                text = time.perf_counter() - began
        assert received.startswith(b"HTTP/1.1 200 "), received
        return Answered(text, time.perf_counter() - began)

    def close(self) -> None:
        self._socket.close()


_TEXT = re.compile(rb'"content": ?"[^"]')


TRANSPORTS: dict[str, type[OverGrpc] | type[OverHttp]] = {"grpc": OverGrpc, "http": OverHttp}


def questions() -> Iterator[str]:
    """Yields questions, each another one: the pages of one that was asked are reused for all of its copies."""
    number = 0
    while True:
        yield f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
        number += 1


def processor_s(daemon: Daemon) -> float:
    """Returns the processor time that a daemon has taken, seconds."""
    taken = daemon.process.cpu_times()
    return taken.user + taken.system


def first_text(daemon: Daemon, mode: str, rounds: int) -> dict[str, float]:
    """Returns medians of the times to the first text and to the end, milliseconds."""
    with closing(OverGrpc(daemon)) as over_grpc, closing(OverHttp(daemon)) as over_http:
        asking: dict[str, Asking] = {"grpc": over_grpc.ask, "http": over_http.ask}
        answers: dict[str, list[Answered]] = {name: [] for name in asking}
        spent = dict.fromkeys(asking, 0.0)
        for number, question in zip(range(-_WARM_UP, rounds), questions(), strict=False):
            for name in in_turn(asking, number):
                before = processor_s(daemon)
                answered = asking[name](question, mode)
                if number >= 0:
                    answers[name].append(answered)
                    spent[name] += processor_s(daemon) - before
    figures = {}
    for name, all_of_it in answers.items():
        figures[f"{name}_first_text_ms"] = 1000 * median(each.text_s for each in all_of_it)
        figures[f"{name}_end_ms"] = 1000 * median(each.end_s for each in all_of_it)
        figures[f"{name}_processor_ms"] = 1000 * spent[name] / rounds
    pairs = list(zip(answers["http"], answers["grpc"], strict=True))
    figures["http_later_ms"] = 1000 * median(http.text_s - other.text_s for http, other in pairs)
    return figures


def throughput(daemon: Daemon, mode: str, clients: int, each: int, rounds: int) -> dict[str, float]:
    """Returns medians of questions a second, and of the daemon's processor time for one, by transport."""
    rates: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
    spent: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
    wanted = questions()
    opened: dict[str, list[OverGrpc | OverHttp]] = {name: [] for name in TRANSPORTS}
    for name, made in TRANSPORTS.items():
        for _ in range(clients):
            opened[name].append(made(daemon))
            opened[name][-1].ask(next(wanted), mode)
    for number in range(rounds):
        batch = [[next(wanted) for _ in range(each)] for _ in range(clients)]
        for name in in_turn(TRANSPORTS, number):

            def work(client: OverGrpc | OverHttp, mine: list[str]) -> None:
                for question in mine:
                    client.ask(question, mode)

            pairs = zip(opened[name], batch, strict=True)
            threads = [threading.Thread(target=work, args=pair) for pair in pairs]
            used, began = processor_s(daemon), time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rates[name].append(clients * each / (time.perf_counter() - began))
            spent[name].append((processor_s(daemon) - used) / (clients * each))
    for client in (client for of_one in opened.values() for client in of_one):
        client.close()
    figures = {f"{name}_per_s": median(found) for name, found in rates.items()}
    figures |= {f"{name}_processor_ms": 1000 * median(found) for name, found in spent.items()}
    figures["http_share"] = median(http / other for http, other in zip(rates["http"], rates["grpc"], strict=True))
    return figures


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="questions of one client by transport and mode")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--each", type=int, default=8, help="questions of each of the clients in one turn")
    parser.add_argument("--turns", type=int, default=5, help="turns of the clients")
    parser.add_argument("--generator", type=Path, default=SMALL_GENERATOR, help="folder of the generator")
    wanted = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with daemon_with_samples(HTTP, generator=wanted.generator) as daemon:
        for mode in MODES:
            figures[f"one client, {mode}"] = first_text(daemon, mode, wanted.rounds)
        for mode in MODES:
            name = f"{wanted.clients} clients, {mode}"
            figures[name] = throughput(daemon, mode, wanted.clients, wanted.each, wanted.turns)
    if wanted.json:
        print_json(figures)
        return 0
    for name, of_it in figures.items():
        print(name)
        for key, value in of_it.items():
            print(f"  {key:<24} {value:10.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
