"""Health checks: whether the daemon is alive and serves, without credentials and without a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge_rag.core.monitoring.status import DaemonState
from edge_rag.server.http.exchange import JSON, Exchange
from edge_rag.service.call import Operation

CHECK_HEALTH: Final = Operation("CheckHealth", None, anonymous=True, probe=True)


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """A route of a health check.

    Attributes:
        path: Its path.
        is_healthy: Whether a state of the daemon is healthy: 200, else 503.
        operation: What its callers want.
        method: HTTP method.
    """

    path: str
    is_healthy: Callable[[DaemonState], bool]
    operation: Operation = CHECK_HEALTH
    method: str = "GET"

    async def answer(self, state: DaemonState, exchange: Exchange) -> None:
        """Answers with the state."""
        body = json.dumps({"status": state.value}).encode()
        await exchange.respond(200 if self.is_healthy(state) else 503, body, JSON, {})


def is_alive(state: DaemonState) -> bool:
    """Whether the daemon answers at all; also while it starts and shuts down."""
    return True


def is_ready(state: DaemonState) -> bool:
    """Whether the daemon serves; also in recovery mode, when it changes nothing."""
    return state in (DaemonState.SERVING, DaemonState.RECOVERY)


PROBES: Final = (HttpProbe("/healthz", is_alive), HttpProbe("/readyz", is_ready))
"""The health checks."""
