"""Open files: each connection is one, and services are mostly started with a bound that is too low for many."""

from __future__ import annotations

import resource
from typing import Final

import structlog

_OTHERS: Final = 512
"""Files that the daemon has open beside its connections, at most: databases, models, pipes to what reads documents."""

log = structlog.get_logger()


def make_room_for(connections: int) -> int:
    """Raises the process's own bound of open files so that so many connections fit, as far as the system lets it.

    Where it does not, the log says what to do, and connections beyond the bound wait until others are closed.

    Returns:
        The bound in force.
    """
    wanted = connections + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning("fewer open files than limits.connections may take; raise LimitNOFILE", open_files=allowed)
    return allowed
