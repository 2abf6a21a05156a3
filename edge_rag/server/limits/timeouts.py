"""How long each call may take."""

from __future__ import annotations

from typing import Final

_LONG: Final = frozenset(
    {
        "Ingest",
        "StartIngest",
        "WatchJob",
        "WatchStatus",
        "ListAuditEvents",
        "Backup",
        "UseModel",
        "MoveIndex",
        "Watch",
        "ServerReflectionInfo",
    }
)
"""Methods that hand over, follow or carry over as much as there is, and so take long by nature."""


class Deadlines:
    """The longest time of a call, where its client gives none or a longer one.

    Args:
        request_s: Of a call, seconds.
        long_call_s: Of a call that takes long by nature, seconds.
    """

    def __init__(self, request_s: float, long_call_s: float) -> None:
        self.request_s = request_s
        self.long_call_s = long_call_s

    def limit(self, request_s: float, long_call_s: float) -> None:
        """Gives calls that begin from now on other bounds, seconds."""
        self.request_s = request_s
        self.long_call_s = long_call_s

    def seconds(self, method: str, remaining: float | None) -> float:
        """Returns how long a call may take.

        Args:
            method: Name of its RPC, for example ``Ask``.
            remaining: What its client gives it, seconds, or None.
        """
        most = self.long_call_s if method in _LONG else self.request_s
        return most if remaining is None else min(most, remaining)
