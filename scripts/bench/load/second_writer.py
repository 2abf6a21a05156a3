"""How long two documents of one client take while another one's 400 are stored before them.

    python -m scripts.bench.load.second_writer [--documents 400] [--json]

Over TLS with a token each, because shares of ingest are counted by client. Both hand pages of sixty sentences over as
jobs, the second one as soon as the first one's are all accepted. Tells the seconds from the second hand-over until both
documents are stored and until a question has been answered from them, and how many of the first one's documents still
waited then. Exits with 1 beyond a minute. Uses the default models.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from edge_rag.client import AskOptions, Client, OutgoingDocument, TextDelta
from edge_rag.client.credentials import Credentials
from edge_rag.core.documents.jobs import Job, JobDocumentState
from tests.e2e.support.running_daemon import start_daemon
from tests.e2e.support.secured_daemon import edge_rag, token

MOST_S: Final = 60.0
QUESTION: Final = "What does line 7 of page 2 name?"


def pages(count: int, name: str) -> list[OutgoingDocument]:
    """Returns documents of sixty sentences each."""
    texts = [
        "".join(f"Line {line} of page {number} names a valve and its month.\n\n" for line in range(60))
        for number in range(count)
    ]
    return [
        OutgoingDocument(f"{name}-{number}.txt", lambda text=text: io.BytesIO(text.encode()))  # type: ignore[misc]
        for number, text in enumerate(texts)
    ]


def hand_over(client: Client, documents: list[OutgoingDocument], collection: str) -> str:
    """Starts a job; returns its id once all documents are accepted."""
    job, *_ = client.start_ingest(documents, collection=collection)
    assert isinstance(job, Job)
    return job.job_id


def measure(count: int) -> dict[str, float]:
    """Returns the seconds until the two documents were stored and answered from, and how many others waited then."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
        tokens = {who: token(who, data, "--roles", "reader,writer") for who in ("first", "second")}
        authority = (data / "tls" / "ca.pem").read_bytes()
        socket = f'local_listen = "unix:{name}/socket"\n[tls]\nalways = true\n'
        with start_daemon(data, Path(name) / "log", socket, models={}) as running:
            first, second = (
                Client(running.address, timeout_s=600, credentials=Credentials(authority, token))
                for token in tokens.values()
            )
            with first, second:
                many = hand_over(first, pages(count, "first"), "first")
                began = time.perf_counter()
                few = hand_over(second, pages(2, "second"), "second")
                for _ in second.watch_job(few):
                    pass
                stored = time.perf_counter() - began
                events = second.ask(QUESTION, AskOptions(collection="second"))
                answer = "".join(event.text for event in events if isinstance(event, TextDelta))
                answered = time.perf_counter() - began
                assert "names a valve" in answer, answer
                waiting = next(job for job in first.jobs() if job.job_id == many)
                first.cancel_job(many)
    return {
        "stored_s": stored,
        "answered_s": answered,
        "others_waiting": waiting.documents.get(JobDocumentState.QUEUED, 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.load.second_writer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--documents", type=int, default=400, help="of the first client [default: %(default)s]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    told = measure(chosen.documents)
    print(
        json.dumps(told)
        if chosen.json
        else f"stored after {told['stored_s']:.1f} s, answered from after {told['answered_s']:.1f} s; "
        f"{told['others_waiting']} of the other one's {chosen.documents} documents still waited"
    )
    sys.exit(told["answered_s"] > MOST_S)


if __name__ == "__main__":
    main()
