"""A daemon within a limit on memory that the kernel enforces."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edge_rag.client import Client
from tests.e2e.support.memory_cgroup import MemoryCgroup, memory_cgroup
from tests.e2e.support.running_daemon import (
    ROOT,
    RunningDaemon,
    ingest,
    model_variables,
    sample_documents,
    small_models,
)

MIB = 1 << 20
SECONDS = float(os.environ.get("EDGE_RAG_SOAK_SECONDS", "3"))
AMPLE = 768 * MIB
"""Nothing has to be halved."""

SHORT = 592 * MIB
"""In the middle of what two halvings take, so that a little kernel memory does not decide."""


@pytest.fixture
def cgroup() -> Iterator[MemoryCgroup]:
    """A cgroup that is there for as long as daemons of the fixture ``start``, if it comes before it."""
    with memory_cgroup() as made:
        yield made


def planned(cgroup: MemoryCgroup, limit: int, data: Path) -> dict[str, Any]:
    """Returns the memory plan of ``start``'s daemons under a limit, as ``doctor`` says it from inside the cgroup."""
    cgroup.limit(limit)
    command = [*cgroup.prefix, sys.executable, "-m", "edge_rag.cli.main", "doctor", "--json", "--data-dir", str(data)]
    environment = os.environ | model_variables(small_models())
    report = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    plan: dict[str, Any] = json.loads(report.stdout)["box"]["memory"]
    return plan


def use(daemon: RunningDaemon) -> None:
    """Ingests the samples, and has sixteen clients ask at once for a while."""
    end = time.monotonic() + SECONDS

    def ask(number: int) -> None:
        with Client(daemon.address, timeout_s=120) as client:
            for turn in itertools.count():
                assert list(client.ask(f"How often must filter {number} of pump {turn} be changed?"))
                if time.monotonic() >= end:
                    return

    assert ingest(daemon.address, sample_documents())
    with ThreadPoolExecutor(16) as clients:
        list(clients.map(ask, range(16)))


@pytest.mark.soak
def test_at_95_percent_of_the_plan_nothing_is_killed(
    cgroup: MemoryCgroup, start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    whole = planned(cgroup, AMPLE, tmp_path / "data")
    assert whole["shrink_steps"] == 0
    limit = whole["planned_bytes"] * 95 // 100
    cgroup.limit(limit)
    daemon = start(prefix=cgroup.prefix)
    use(daemon)
    assert daemon.stop() == 0
    assert cgroup.kills() == 0
    assert cgroup.most_bytes() <= limit


def test_with_less_memory_the_plan_shrinks_and_the_daemon_serves(
    cgroup: MemoryCgroup, start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    whole = planned(cgroup, AMPLE, tmp_path / "data")
    short = planned(cgroup, SHORT, tmp_path / "data")
    assert short["shrink_steps"] > 0
    assert short["pages"] < whole["pages"]
    assert short["slots"] < whole["slots"]
    assert short["step_tokens"] < whole["step_tokens"]
    daemon = start(prefix=cgroup.prefix)
    use(daemon)
    with Client(daemon.address) as client:
        report = client.status()
        engine = report.engine
    assert report.memory.shrink_steps == short["shrink_steps"]
    assert daemon.stop() == 0
    assert engine.slots <= whole["slots"] // 2
    assert engine.pages < whole["pages"]
    assert cgroup.kills() == 0
    assert "memory is short" in daemon.log.read_text()


def test_where_nothing_fits_the_daemon_says_the_numbers_and_does_not_start(
    cgroup: MemoryCgroup, start: Callable[..., RunningDaemon]
) -> None:
    cgroup.limit(256 * MIB)
    with pytest.raises(AssertionError, match=r"memory: 2\d\d MiB can be had, at least \d+ are needed: process"):
        start(prefix=cgroup.prefix)
    assert cgroup.kills() == 0
