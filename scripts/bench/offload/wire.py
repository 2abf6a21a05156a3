"""A wire between two network namespaces, in user space: delay, loss and a bound on the rate, for kernels without netem.

    python -m scripts.bench.offload.wire BOARD LENDER --delay-ms 5 --loss-percent 0.1 --rate-mbit 100

Both ends are TUN devices called ``wire0``. Says so once they are there, waits for a line that says that both are up,
and carries packets until it is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import random
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000
_LONGEST_PACKET: Final = 65536
_LONGEST_QUEUE_S: Final = 0.2


def end_in(namespace: str) -> int:
    """Makes a TUN device in a namespace; returns its descriptor, which belongs to it from wherever it is used."""

    def make() -> int:
        home = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(home, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(home)
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"wire0", _IFF_TUN_WITHOUT_HEADER))
        return device

    with ThreadPoolExecutor(1) as thread:  # a thread of its own: it moves into the namespace and stays there
        return thread.submit(make).result()


class Lane:
    """One direction.

    Args:
        source: Descriptor that packets are read from.
        sink: Descriptor that they are written to.
        delay_s: Time from the end of sending to the arrival, seconds.
        loss: Share of packets that do not arrive.
        rate: Bytes a second.
        draw: Decides which packets are lost.
    """

    def __init__(self, source: int, sink: int, delay_s: float, loss: float, rate: float, draw: random.Random) -> None:
        self._source = source
        self._sink = sink
        self._delay_s = delay_s
        self._loss = loss
        self._rate = rate
        self._draw = draw
        self._on_the_way = SimpleQueue[tuple[float, bytes]]()

    def start(self) -> None:
        """Begins to carry packets, on threads of its own."""
        for work in (self._take_in, self._hand_out):
            threading.Thread(target=work, daemon=True).start()

    def _take_in(self) -> None:
        free_at = 0.0
        while True:
            packet = os.read(self._source, _LONGEST_PACKET)
            now = time.monotonic()
            begins = max(now, free_at)
            if self._draw.random() < self._loss or begins - now > _LONGEST_QUEUE_S:
                continue
            free_at = begins + len(packet) / self._rate
            self._on_the_way.put((free_at + self._delay_s, packet))

    def _hand_out(self) -> None:
        while True:
            due, packet = self._on_the_way.get()
            time.sleep(max(0.0, due - time.monotonic()))
            os.write(self._sink, packet)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namespaces", nargs=2)
    parser.add_argument("--delay-ms", type=float, default=5, help="there and back")
    parser.add_argument("--loss-percent", type=float, default=0.1, help="each way")
    parser.add_argument("--rate-mbit", type=float, default=100, help="each way")
    wanted = parser.parse_args()
    one, other = (end_in(namespace) for namespace in wanted.namespaces)
    print("there", flush=True)
    sys.stdin.readline()
    for seed, (source, sink) in enumerate(((one, other), (other, one))):
        delay_s, loss = wanted.delay_ms / 2000, wanted.loss_percent / 100
        Lane(source, sink, delay_s, loss, wanted.rate_mbit * 1e6 / 8, random.Random(seed)).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
