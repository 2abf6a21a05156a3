from dataclasses import replace
from datetime import UTC, datetime

import pytest

from edge_rag.api.v1 import documents_pb2
from edge_rag.cli.commands.documents.jobs import forecast_text, progress_text
from edge_rag.client import JobProgress
from edge_rag.core.documents.jobs import IngestPhase, IngestWork, Job, JobId, JobState
from edge_rag.core.shapes.encoder import encode
from tests.unit.cli.scripted_daemon import ScriptedDaemon

JOB = Job(JobId("3f9c"), JobState.RUNNING, datetime(2026, 1, 1, tzinfo=UTC), None, frozenset(), {}, 9, 0)


@pytest.mark.parametrize(
    ("ahead", "time_left_s", "text"),
    [
        (0, None, ""),
        (1, None, "behind 1 document of other jobs"),
        (390, 0.2, "behind 390 documents of other jobs, about 1 s left"),
        (0, 80.0, "about 80 s left"),
        (2, 150.0, "behind 2 documents of other jobs, about 2 min left"),
        (0, 9000.0, "about 2 h left"),
    ],
)
def test_a_job_says_what_is_stored_before_it_and_how_long_it_takes(
    ahead: int, time_left_s: float | None, text: str
) -> None:
    job = replace(JOB, documents_ahead=ahead, time_left_s=time_left_s)

    assert forecast_text(job) == text
    assert progress_text(JobProgress(job, (), 0, None)) == text
    assert (encode(job)["documents_ahead"], encode(job)["time_left_s"]) == (ahead, time_left_s)


def test_a_job_that_waits_for_others_is_listed_as_queued(scripted: ScriptedDaemon) -> None:
    queued = documents_pb2.Job(id="1f", state=documents_pb2.JOB_STATE_RUNNING, documents_ahead=4)
    running = documents_pb2.Job(id="2f", state=documents_pb2.JOB_STATE_RUNNING, documents_ahead=4)
    added = documents_pb2.JOB_DOCUMENT_STATE_ADDED
    running.documents.append(documents_pb2.Job.Count(state=added, count=1))
    scripted.script("ListJobs", lambda _, __: documents_pb2.ListJobsResponse(jobs=[queued, running]))
    listed = scripted.run("jobs", "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed] == [["1f", "queued"], ["2f", "running"]]


def test_the_step_in_work_comes_first() -> None:
    work = IngestWork(JobId("3f9c"), "a.pdf", IngestPhase.EMBEDDING, 3, 9)
    job = replace(JOB, documents_ahead=4)

    assert progress_text(JobProgress(job, (), 0, work)) == "embedding 3/9 a.pdf, behind 4 documents of other jobs"
    assert (
        progress_text(JobProgress(job, (), 0, replace(work, problem="the disk is full"))) == "waiting: the disk is full"
    )
