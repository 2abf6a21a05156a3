"""When a failed call is repeated."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.client.errors import CallStatus, ClientError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of repeating a call. A policy decides; the client waits and draws the random number.

    Attributes:
        max_backoff_s: Longest time between the attempts of one call, all together, seconds; 0 never repeats.
        first_delay_s: Delay after the first failure if the server names none, seconds; doubles each time.
        longest_delay_s: Bound of that doubling, seconds.
    """

    max_backoff_s: float = 5.0
    first_delay_s: float = 0.1
    longest_delay_s: float = 2.0

    def delay(
        self, error: ClientError, failures: int, waited_s: float, jitter: float, *, reached: bool = False
    ) -> float | None:
        """Decides about one failure.

        A call that a full queue refused is repeated only if the server names a delay: otherwise the refusal is a limit
        and not a queue. A call is not repeated if the server asks for that, or if no server was reached: waiting does
        not start one.

        Args:
            error: Error of the last attempt.
            failures: Failed attempts so far, at least 1.
            waited_s: Time between attempts so far, seconds.
            jitter: Random number, 0 to 1; spreads the retries of clients that were refused at the same time.
            reached: Whether the server answered before, so that one that is not there now is expected back.

        Returns:
            Delay before the next attempt, seconds, or None to give up.
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
        return delay if waited_s + delay <= self.max_backoff_s else None
