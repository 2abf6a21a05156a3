"""What borrowing another machine's embedder gives an ingest: passages a second of a slow board alone, and with it.

    python -m scripts.bench.offload.borrowed_encoders [--passages 600] [--share 0.25] [--delay-ms 5]

Two daemons with the default embedder, machines and wire as ``scripts.bench.offload`` makes them: a board with a share
of a processor, and a lender with one. The board stores one document three times: alone, with every passage embedded
elsewhere (`prefer-remote`), and with both sharing the work (`overflow`). The lender stores it too, alone. Time is
from the call to the durable document; reading, cutting and storing it are always the board's own work. Searches must
find the same, with the same scores, each time.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from edge_rag.client import Client, SearchOptions
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.placement import OffloadRule
from scripts.bench.offload.__main__ import board_config, daemon, lender_config
from scripts.bench.offload.machines import Pair, pair

_QUESTION: Final = "How often is pump 71 greased?"
_COLLECTION: Final = "manuals"


@dataclass(frozen=True, slots=True)
class Taken:
    """One ingest.

    Attributes:
        name: Whose, and how.
        passages: Passages that the document was cut into.
        seconds: How long it took.
        elsewhere: Texts that the other machine embedded, those of the warm-up included.
        failures: Times that it was given up.
        sent_bytes: What was sent to it.
        found: What a search finds afterwards: places and scores.
    """

    name: str
    passages: int
    seconds: float
    elsewhere: int
    failures: int
    sent_bytes: int
    found: tuple[tuple[int, float], ...]

    @property
    def speed(self) -> float:
        """Passages a second."""
        return self.passages / self.seconds


def document(passages: int, first: int = 1) -> bytes:
    """Returns a document of about so many passages."""
    return "\n\n".join(
        f"# Pump {number}\n\nPump {number} is greased every {10 * number} hours with grease of grade {number % 7}. Its "
        f"strainer is opened only after the suction valve of line {number % 31} was closed, and the drain is kept open "
        f"meanwhile. Leaks of pump {number} are reported to the watch, who notes them in the book on page {number} and "
        f"has them looked after within {number % 48} hours. The spare parts lie on shelf {number % 19} of the store."
        for number in range(first, first + passages)
    ).encode()


def take(name: str, address: str, passages: int) -> Taken:
    """Has a daemon store a document, after a small one by which speeds are known."""
    with Client(address, timeout_s=3600) as client:
        client.create_collection(_COLLECTION, CollectionSettings(offload=OffloadRule.ALLOWED))
        client.ingest("warm.md", lambda: io.BytesIO(document(64, 100_000)), collection=_COLLECTION)
        client.delete("warm.md", collection=_COLLECTION)
        content, began = document(passages), time.monotonic()
        client.ingest("pumps.md", lambda: io.BytesIO(content), collection=_COLLECTION)
        seconds = time.monotonic() - began
        hits = client.search(_QUESTION, SearchOptions(collection=_COLLECTION, limit=10)).hits
        (stored,) = (each for each in client.collections() if each.name == _COLLECTION)
        remotes = client.status().remotes
    return Taken(
        name=name,
        passages=stored.chunks,
        seconds=seconds,
        elsewhere=sum(remote.embedded_texts for remote in remotes),
        failures=sum(remote.failures for remote in remotes),
        sent_bytes=sum(remote.sent_bytes for remote in remotes),
        found=tuple((hit.start, hit.score) for hit in hits),
    )


def measure(mode: str, passages: int, machines: Pair, folder: Path) -> Taken:
    """Starts a board in a mode and has it store the document."""
    config = board_config(mode, "", folder, machines.address)
    if mode != "never":
        config += 'uses = ["embed"]\n'
    with daemon(machines.board, folder / f"board-{mode}", config) as address:
        return take(f"board, {mode}", address, passages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=600)
    parser.add_argument("--share", type=float, default=0.25, help="the board's share of its processor")
    parser.add_argument("--delay-ms", type=float, default=5)
    parser.add_argument("--loss-percent", type=float, default=0.1)
    parser.add_argument("--rate-mbit", type=float, default=100)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        machines = stack.enter_context(pair(wanted.share, wanted.delay_ms, wanted.loss_percent, wanted.rate_mbit))
        config = lender_config("", folder, machines.address)
        lender = stack.enter_context(daemon(machines.lender, folder / "lender", config, f"{machines.address}:7422"))
        modes = ("never", "prefer-remote", "overflow")
        runs = [measure(mode, wanted.passages, machines, folder) for mode in modes]
        runs.append(take("lender, alone", lender, wanted.passages))
    same = len({each.found for each in runs}) == 1
    if wanted.json:
        print(json.dumps({"machines": machines.described, "same": same, "runs": [asdict(each) for each in runs]}))
    else:
        print(f"{machines.described}; a document of {runs[0].passages} passages")
        print("who, how                passages/s   seconds  elsewhere  failures  sent")
        for each in runs:
            print(
                f"{each.name:<22} {each.speed:11.1f}  {each.seconds:8.1f}  {each.elsewhere:9d}  {each.failures:8d}"
                f"  {each.sent_bytes / 2**20:.2f} MiB"
            )
        print(f"with both it goes {runs[2].speed / runs[0].speed:.2f} times as fast as on the board alone")
        print("searches find the same with the same scores" if same else "SEARCHES FIND SOMETHING ELSE")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
