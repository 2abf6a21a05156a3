"""What ingest costs those who ask: latency of searches with and without a job at work, and what they cost the job.

    python -m scripts.bench.encoders.ingest_latency [--questions 60]

A daemon of its own serves the samples. Questions are asked one after the other, first alone, then while a job embeds,
and the job's own speed is taken with and without questions.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from edge_rag.client import Client, OutgoingDocument, SearchOptions
from edge_rag.core.documents.jobs import Job
from scripts.bench.harness.daemon import daemon_with_samples

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
QUESTIONS = (
    "How often must the pump bearings be greased?",
    "What do I do when the gas alarm sounds?",
    "Which seal belongs to the inlet valve?",
    "Who may open the electrical cabinet?",
)


def start_job(client: Client, name: str, paragraphs: int) -> str:
    """Hands over one large document; returns its job."""
    text = "".join(
        f"Valve {n} of pump {name} is closed before the seal of line {n % 97} is changed, and opened after it.\n\n"
        for n in range(paragraphs)
    ).encode()
    document = OutgoingDocument(f"{name}.txt", lambda: io.BytesIO(text))
    (job,) = (event for event in client.start_ingest([document], collection="other") if isinstance(event, Job))
    return job.job_id


def asked(client: Client, count: int, proceed: Callable[[], bool] = lambda: True) -> list[float]:
    """Searches one after the other; returns how long each took, seconds."""
    took: list[float] = []
    while len(took) < count and proceed():
        began = time.perf_counter()
        client.search(QUESTIONS[len(took) % len(QUESTIONS)], SearchOptions(limit=5))
        took.append(time.perf_counter() - began)
    return took


def finish(client: Client, job_id: str) -> None:
    for _ in client.watch_job(job_id):
        pass


def line(what: str, took: list[float]) -> str:
    p95 = sorted(took)[int(0.95 * (len(took) - 1))]
    return (
        f"{what:<28} p50 {1000 * statistics.median(took):6.0f} ms   p95 {1000 * p95:6.0f} ms   ({len(took)} searches)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--paragraphs", type=int, default=2000)
    wanted = parser.parse_args()
    with daemon_with_samples() as daemon, Client(daemon.address) as client:
        asked(client, 8)
        alone = asked(client, wanted.questions)
        began = time.perf_counter()
        finish(client, start_job(client, "undisturbed", wanted.paragraphs))
        undisturbed = time.perf_counter() - began
        began = time.perf_counter()
        job_id = start_job(client, "disturbed", wanted.paragraphs)
        beside = asked(client, wanted.questions, lambda: client.jobs(1)[0].finished_at is None)
        asking = time.perf_counter() - began
        finish(client, job_id)
        disturbed = time.perf_counter() - began
    print(line("searches alone", alone))
    print(line("searches beside a job", beside))
    print(f"job alone {undisturbed:.1f} s; beside searches for {asking:.1f} s of it {disturbed:.1f} s")


if __name__ == "__main__":
    main()
