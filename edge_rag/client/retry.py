"""When a failed call is worth repeating. Pure: the caller sleeps and draws the random number."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.client.failures import CallStatus, ClientError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of repeating a call.

    Attributes:
        patience_s: Longest time spent waiting between attempts of one call, all together, seconds; 0 never repeats.
        first_delay_s: Delay after the first failure when the server names none, seconds; doubles each time.
        longest_delay_s: Bound of that doubling, seconds.
    """

    patience_s: float = 5.0
    first_delay_s: float = 0.1
    longest_delay_s: float = 2.0

    def delay(
        self, error: ClientError, failures: int, waited_s: float, jitter: float, *, reached: bool = False
    ) -> float | None:
        """Decides about one failure.

        A full queue is asked again only when the server says when; without that, it is a limit and not a queue. A
        server that asked not to be asked again is not. One that was never reached is not asked again, because waiting
        will not start it.

        Args:
            error: What the last attempt ended with.
            failures: Failed attempts so far, at least 1.
            waited_s: Seconds waited between attempts so far.
            jitter: Random number, 0 to 1; keeps clients that were refused together from coming back together.
            reached: Whether the server answered before, so that one that is not there now is expected back.

        Returns:
            Seconds to wait before the next attempt, or None to give up.
        """
        if error.final:
            return None
        match error.status:
            case CallStatus.RESOURCE_EXHAUSTED if error.retry_after_s is not None:
                delay = error.retry_after_s * (1 + jitter / 4)
            case CallStatus.UNAVAILABLE if error.connected or reached:
                doubling = min(self.longest_delay_s, self.first_delay_s * 2.0 ** min(failures - 1, 30))
                delay = (error.retry_after_s if error.retry_after_s is not None else doubling) * (1 + jitter / 4)
            case _:
                return None
        return delay if waited_s + delay <= self.patience_s else None
