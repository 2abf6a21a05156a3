"""Clients that ask one question after the other, and what comes of it."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.client import AskOptions, Client
from edge_rag.client.errors import ClientError
from edge_rag.core.answer import Finished
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerMode, Priority
from scripts.bench.harness.figures import percentile

SAMPLES: Final = Path(__file__).parents[3] / "deploy" / "samples"
QUESTIONS: Final = (
    "How often must the pump bearings be greased?",
    "What do I do when the gas alarm sounds?",
    "What is the usual dose of hypochlorite?",
    "How is a water sample taken?",
)
_OURS: Final = frozenset(
    {AuditEventKind.PLACED, AuditEventKind.HEDGED, AuditEventKind.TAKEN_OVER, AuditEventKind.BREAKER}
)


@dataclass(frozen=True, slots=True)
class Asking:
    """How clients ask.

    Attributes:
        warm_s: For how long before anything counts, seconds.
        seconds: For how long what ends counts, seconds.
        deadline_s: Deadline of a question, seconds.
        characters: Length of every answer.
    """

    warm_s: float
    seconds: float
    deadline_s: float
    characters: int


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked of a daemon, and what came of it.

    Attributes:
        name: Which load.
        clients: Clients that asked at once.
        goodput: Answers a second that came whole and in time.
        late: Those that did not.
        p50_s: Median time of an answer, seconds; one that did not come counts as the deadline.
        p99_s: 99th percentile of the same.
        first_text_p50_s: Median time to the first text of those that came.
        elsewhere: Answers that the other machine finished, those of the warm-up included.
        failures: Times that it was given up.
        decisions: What was decided about where to compute, by kind, of the latest that are kept.
    """

    name: str
    clients: int
    goodput: float
    late: int
    p50_s: float
    p99_s: float
    first_text_p50_s: float
    elsewhere: int
    failures: int
    decisions: str


def load(name: str, address: str, clients: int, asking: Asking) -> Load:
    """Has so many clients ask a daemon, and counts what ends after the warm-up."""
    took: list[float] = []
    firsts: list[float] = []
    late, lock = 0, threading.Lock()
    began = time.monotonic()
    counts_from, ends = began + asking.warm_s, began + asking.warm_s + asking.seconds

    def one_client(number: int) -> None:
        nonlocal late
        with Client(address, timeout_s=asking.deadline_s) as client:
            count = number
            while time.monotonic() < ends:
                asked = time.monotonic()
                finished = _ask(client, QUESTIONS[count % len(QUESTIONS)], asking.characters)
                now = time.monotonic()
                count += 1
                if not counts_from <= now < ends:
                    continue
                with lock:
                    if finished is None:
                        late += 1
                        took.append(asking.deadline_s)
                    else:
                        took.append(now - asked)
                        firsts.append(finished.first_token_s or 0.0)

    threads = [threading.Thread(target=one_client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Client(address) as client:
        remotes = client.status().remotes
    ordered = sorted(took) or [float("nan")]
    return Load(
        name=name,
        clients=clients,
        goodput=len(firsts) / asking.seconds,
        late=late,
        p50_s=statistics.median(ordered),
        p99_s=percentile(took, 0.99),
        first_text_p50_s=statistics.median(firsts or [float("nan")]),
        elsewhere=sum(remote.answers for remote in remotes),
        failures=sum(remote.failures for remote in remotes),
        decisions=", ".join(f"{count} {kind}" for kind, count in decisions(address).most_common()),
    )


def decisions(address: str) -> Counter[str]:
    """Returns what was decided about where to compute, of the latest that are kept."""
    with Client(address) as client:
        entries = [each.event for each in client.audit_events() if isinstance(each, AuditEntry)]
    return Counter(
        each.reason if each.kind is AuditEventKind.PLACED else each.kind.value for each in entries if each.kind in _OURS
    )


def fill(address: str) -> None:
    """Ingests the samples and allows them to leave."""
    with Client(address) as client:
        for path in sorted(SAMPLES.iterdir()):
            if path.suffix in (".md", ".txt"):
                client.ingest(path.name, lambda path=path: path.open("rb"))  # type: ignore[misc]
        client.update_collection("default", CollectionSettings(offload=OffloadRule.ALLOWED), {"offload"})


def _ask(client: Client, question: str, characters: int) -> Finished | None:
    """Returns the end of an answer; None where it did not come whole and in time."""
    # So long an answer in any case: what the model has to say differs in length.
    options = AskOptions(
        mode=AnswerMode.FREE,
        regex=f"[a-z ]{{{characters}}}",
        max_tokens=characters,
        passages=1,
        priority=Priority.INTERACTIVE,
    )
    try:
        last = list(client.ask(question, options))[-1]
    except ClientError:
        return None
    return last if isinstance(last, Finished) else None
