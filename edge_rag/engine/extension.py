"""Where features attach to the engine's loop: passage warm-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.scheduling.plan import StepPlan


class EngineExtension:
    """Hooks of the loop; a subclass overrides those it needs. All run on the engine's thread.

    A new request passes the extensions in order and then enters the scheduler. One that an extension holds goes on to
    the next extension once a hook returns it.

        hold -> [held] -> begin_step | end_step | fail_step | forget returns it -> next extension ... -> scheduler
    """

    def hold(self, request: ActiveRequest) -> bool:
        return False

    def begin_step(self, now: float) -> Iterable[ActiveRequest]:
        return ()

    def end_step(self, plan: StepPlan, run_s: float) -> Iterable[ActiveRequest]:
        """Called after each step is committed; returns held requests that wait no longer."""
        return ()

    def fail_step(self, plan: StepPlan) -> Iterable[ActiveRequest]:
        return ()

    def forget(self, is_ended: Callable[[str], bool]) -> Iterable[ActiveRequest]:
        return ()

    def remove(self, request: ActiveRequest) -> None:
        """Called when a request is over, held or not."""
