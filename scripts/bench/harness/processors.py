"""Whose processors are whose, so that what a load costs its sender is not taken from who bears it.

Clients of an appliance are other machines. On one machine their work, and an attacker's, would slow the daemon down and
be measured as if the daemon's own work did. So the daemon has all processors but the last one, and they have that. On a
machine with a single one all share it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Processors:
    """Who works on which."""

    daemon: frozenset[int]
    senders: frozenset[int]


def divided() -> Processors:
    allowed = sorted(os.sched_getaffinity(0))
    return Processors(frozenset(allowed[:-1] or allowed), frozenset(allowed[-1:]))


def work_on(processors: frozenset[int]) -> None:
    os.sched_setaffinity(0, processors)


def on(processors: frozenset[int] | None) -> list[str]:
    """What a command is begun with so that it works on these; nothing where it works on those of who starts it."""
    return [] if processors is None else ["taskset", "--cpu-list", ",".join(map(str, sorted(processors)))]
