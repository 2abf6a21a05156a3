"""The order of passages in a file, so that prompts begin after a restart as they did before."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final

from edge_rag.generator.prompt.passage_order import HeatState

_DIGEST_BYTES: Final = 64


class HeatFile:
    """Keeps a ``HeatState``. Any thread.

    Args:
        path: The file; its folder is made if need be.
        failed: Told in words what went wrong; nothing is raised, since no answer depends on it.
    """

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        self._path = path
        self._failed = failed
        self._writing = Lock()

    def load(self) -> HeatState | None:
        """Returns what was saved last; None where there is nothing, or it is damaged."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._failed(f"the order of passages cannot be read: {error}")
            return None
        digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if sha256(body).hexdigest().encode() != digest:
            self._failed(f"{self._path} is damaged; passages are put in order anew")
            return None
        held: dict[str, Any] = json.loads(body)
        return HeatState({int(chunk): float(count) for chunk, count in held["counts"].items()}, tuple(held["order"]))

    def save(self, state: HeatState) -> None:
        """Writes a state in the place of the one before."""
        body = json.dumps({"counts": state.counts, "order": state.order}).encode()
        unfinished = self._path.with_suffix(".part")
        with self._writing:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                unfinished.write_bytes(sha256(body).hexdigest().encode() + body)
                unfinished.replace(self._path)
            except OSError as error:
                self._failed(f"the order of passages cannot be kept: {error}")
