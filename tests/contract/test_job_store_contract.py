"""What the job store promises the pipeline."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.jobs import JobBacklog, JobDocumentState, JobId, JobState, QueuedDocument, Ticket
from edge_rag.errors import JobClosed, JobNotFound, StorageCorrupt, StorageFull
from edge_rag.storage.database import Database
from edge_rag.storage.jobs import (
    MAX_COLLECTIONS,
    MAX_FINISHED_JOBS,
    MAX_FINISHED_JOBS_OF_ALL,
    WINDOW_DOCUMENTS,
    JobStore,
)
from edge_rag.storage.spool.files import Spool

_LIMIT = 1 << 16


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "documents.sqlite3")) as opened:
        yield opened


@pytest.fixture
def jobs(database: Database, tmp_path: Path) -> JobStore:
    return JobStore(database, Spool(tmp_path / "spool", _LIMIT))


def upload(name: str, size: int = 10) -> Upload:
    return Upload.of_bytes("manuals", name, "text/plain", name[:1].encode() * size, {"author": "Ada"})


def nothing_waits(jobs: JobStore) -> bool:
    return not jobs.owners() and not jobs.waiting("ada", "") and not jobs.backlog()


def test_a_queued_document_is_returned_unchanged_and_in_order(jobs: JobStore) -> None:
    job = jobs.start("ada")
    accepted = [jobs.accept(job.job_id, upload(name)) for name in ("b.txt", "a.txt")]

    assert [document.state for document in accepted] == [JobDocumentState.QUEUED] * 2
    for document in accepted:
        following = jobs.waiting("ada", "")[0]
        assert following == QueuedDocument(document.ticket, job.job_id, "ada", "manuals", document.name, 10)
        queued, sent = jobs.upload(document.ticket), upload(document.name)
        assert (queued.collection, queued.name, queued.media_type) == (sent.collection, sent.name, sent.media_type)
        assert (queued.metadata, queued.content.read()) == (sent.metadata, sent.content.read())
        assert (queued.content.size_bytes, queued.content.sha256) == (sent.content.size_bytes, sent.content.sha256)
        jobs.complete(document.ticket, JobDocumentState.ADDED)
    assert nothing_waits(jobs)


def test_what_waits_is_told_by_owner_and_job(jobs: JobStore) -> None:
    first, other, second = jobs.start("ada"), jobs.start("bob"), jobs.start("ada")
    for job, names in ((first, "ab"), (other, "c"), (second, "d")):
        for name in names:
            jobs.accept(job.job_id, upload(name))

    assert list(jobs.owners()) == ["ada", "bob"]
    assert [each.name for each in jobs.waiting("ada", "")] == ["a", "b", "d"]
    assert [each.name for each in jobs.waiting("bob", "")] == ["c"]
    assert list(jobs.backlog()) == [
        JobBacklog(first.job_id, "ada", 2, 20),
        JobBacklog(other.job_id, "bob", 1, 10),
        JobBacklog(second.job_id, "ada", 1, 10),
    ]


def test_a_newer_document_of_a_name_waits_for_the_older_one_of_anybody(jobs: JobStore) -> None:
    ada, bob = jobs.start("ada"), jobs.start("bob")
    older = jobs.accept(ada.job_id, upload("a"))
    newer = jobs.accept(bob.job_id, upload("a"))
    elsewhere = jobs.accept(bob.job_id, Upload.of_bytes("others", "a", "text/plain", b"a"))

    assert [each.order for each in jobs.waiting("bob", "")] == [elsewhere.ticket]
    jobs.complete(older.ticket, JobDocumentState.REJECTED, "it is damaged")
    assert [each.order for each in jobs.waiting("bob", "")] == [newer.ticket, elsewhere.ticket]


def test_of_many_waiting_documents_and_collections_a_bounded_number_is_read(jobs: JobStore, database: Database) -> None:
    job = jobs.start("ada")
    jobs.accept(job.job_id, upload("a"))
    columns = "job, owner, media_type, metadata, size_bytes, sha256, spooled, state, reason, document_id, change"
    with database.writing() as connection:
        connection.executemany(
            f"INSERT INTO job_documents ({columns}, collection, name) SELECT {columns}, ?, ? FROM job_documents "
            "WHERE name = 'a'",
            [(f"c-{number % 100:02}", f"{number}") for number in range(MAX_COLLECTIONS * 100)]
            + [("manuals", f"{number}") for number in range(10 * WINDOW_DOCUMENTS)],
        )

    first = jobs.waiting("ada", "")
    further = jobs.waiting("ada", "c-90")

    assert {each.collection for each in first} == {f"c-{number:02}" for number in range(MAX_COLLECTIONS)}
    assert [each.collection for each in further[:1]] == ["c-91"]
    assert len({each.collection for each in further}) == MAX_COLLECTIONS
    assert sum(each.collection == "manuals" for each in further) == WINDOW_DOCUMENTS


def test_a_job_ends_with_its_last_document_once_it_is_handed_over(jobs: JobStore) -> None:
    job = jobs.start("ada")
    first, second = (jobs.accept(job.job_id, upload(name)) for name in ("a", "b"))
    jobs.complete(first.ticket, JobDocumentState.REJECTED, "it is damaged")
    jobs.finish_uploads(job.job_id)
    assert jobs.job(job.job_id).state is JobState.RUNNING

    jobs.complete(second.ticket, JobDocumentState.ADDED)

    ended = jobs.job(job.job_id)
    assert (ended.state, ended.finished_at is not None) == (JobState.FINISHED, True)
    assert ended.documents == {JobDocumentState.REJECTED: 1, JobDocumentState.ADDED: 1}
    assert (ended.size_bytes, ended.done_bytes) == (20, 20)


def test_a_cancelled_job_takes_no_further_document(jobs: JobStore) -> None:
    job = jobs.start("ada")
    jobs.cancel(job.job_id)

    with pytest.raises(JobClosed):
        jobs.accept(job.job_id, upload("late.txt"))
    assert nothing_waits(jobs)


def test_a_job_without_documents_ends_when_it_is_handed_over(jobs: JobStore) -> None:
    job = jobs.start("ada")
    jobs.finish_uploads(job.job_id)

    assert jobs.job(job.job_id).state is JobState.FINISHED


def test_changes_are_reported_once_each_and_in_order(jobs: JobStore) -> None:
    job = jobs.start("ada")
    tickets = [jobs.accept(job.job_id, upload(str(number))).ticket for number in range(4)]
    _, seen = jobs.changes(job.job_id, 0, 3)
    assert [document.name for document in seen] == ["0", "1", "2"]

    jobs.complete(tickets[0], JobDocumentState.ADDED)
    _, later = jobs.changes(job.job_id, seen[-1].change, 10)

    assert [(document.name, document.state.value) for document in later] == [("3", "queued"), ("0", "added")]


def test_a_final_state_stays(jobs: JobStore) -> None:
    job = jobs.start("ada")
    document = jobs.accept(job.job_id, upload("a"))
    jobs.complete(document.ticket, JobDocumentState.ADDED)
    jobs.complete(document.ticket, JobDocumentState.REJECTED, "too late")

    assert jobs.job(job.job_id).documents == {JobDocumentState.ADDED: 1}


def test_a_cancelled_job_has_nothing_left_to_do(jobs: JobStore, tmp_path: Path) -> None:
    job = jobs.start("ada")
    stored, waiting = (jobs.accept(job.job_id, upload(name)) for name in ("a", "b"))
    jobs.complete(stored.ticket, JobDocumentState.ADDED)

    cancelled = jobs.cancel(job.job_id)

    assert cancelled.state is JobState.CANCELLED
    assert cancelled.documents == {JobDocumentState.ADDED: 1, JobDocumentState.CANCELLED: 1}
    assert nothing_waits(jobs)
    assert jobs.cancel(job.job_id) == cancelled
    jobs.complete(waiting.ticket, JobDocumentState.ADDED)
    assert jobs.job(job.job_id) == cancelled


def test_what_waits_is_bounded_and_a_single_large_document_still_passes(jobs: JobStore) -> None:
    job = jobs.start("ada")
    large = jobs.accept(job.job_id, upload("large", 2 * _LIMIT))
    with pytest.raises(StorageFull, match=r"ingest\.spool_mib"):
        jobs.accept(job.job_id, upload("small"))

    jobs.complete(large.ticket, JobDocumentState.ADDED)

    assert jobs.accept(job.job_id, upload("small")).name == "small"


def test_an_unknown_job_is_not_found(jobs: JobStore) -> None:
    for call in (
        lambda: jobs.accept(JobId("none"), upload("a")),
        lambda: jobs.finish_uploads(JobId("none")),
        lambda: jobs.cancel(JobId("none")),
        lambda: jobs.job(JobId("none")),
        lambda: jobs.changes(JobId("none"), 0, 10),
    ):
        with pytest.raises(JobNotFound):
            call()


def started(jobs: JobStore, owner: str = "ada", count: int = 1) -> list[JobId]:
    ids = [jobs.start(owner).job_id for _ in range(count)]
    for job_id in ids:
        jobs.accept(job_id, upload("a.txt", 1))
    return ids


def finished(database: Database, owner: str, count: int) -> list[JobId]:
    """Writes finished jobs without passing through the store, which would sync the disk for each."""
    ids = [JobId(f"{owner}-{number}") for number in range(count)]
    with database.writing() as connection:
        connection.executemany(
            "INSERT INTO jobs (id, owner, state, handed_over, started_at, finished_at) VALUES (?, ?, ?, 1, ?, ?)",
            [(job_id, owner, JobState.FINISHED.value, *["2026-01-01T00:00:00+00:00"] * 2) for job_id in ids],
        )
    return ids


def test_the_newest_jobs_come_first(jobs: JobStore) -> None:
    ids = started(jobs, count=4)

    assert [job.job_id for job in jobs.jobs(3)] == ids[:0:-1]


def test_jobs_of_other_collections_do_not_count_among_the_newest(jobs: JobStore) -> None:
    seen = jobs.start("ada")
    jobs.accept(seen.job_id, upload("a.txt"))
    for collection in ("others", "manuals"):
        hidden = jobs.start("ada")
        jobs.accept(hidden.job_id, Upload.of_bytes("others", "b.txt", "text/plain", b"b", {}))
        jobs.accept(hidden.job_id, Upload.of_bytes(collection, "c.txt", "text/plain", b"c", {}))

    assert [job.job_id for job in jobs.jobs(1, frozenset({"manuals"}))] == [seen.job_id]
    assert [job.job_id for job in jobs.jobs(9, frozenset({"manuals"}))] == [seen.job_id]
    assert jobs.jobs(9, frozenset()) == ()
    assert len(jobs.jobs(9)) == 3


def test_of_each_owner_the_last_hundred_finished_jobs_are_kept_and_all_that_run(
    jobs: JobStore, database: Database
) -> None:
    (running,) = started(jobs)
    mine, others = finished(database, "ada", 3), finished(database, "eve", 105)
    (latest,) = started(jobs, "eve")

    kept = [job.job_id for job in jobs.jobs(1000)]

    assert kept == [latest, *others[:4:-1], *mine[::-1], running]


def test_beyond_the_number_kept_in_all_the_owner_with_the_most_loses_its_oldest(
    jobs: JobStore, database: Database
) -> None:
    few = finished(database, "ada", 60)
    for number in range(MAX_FINISHED_JOBS_OF_ALL // MAX_FINISHED_JOBS + 1):
        finished(database, f"writer-{number}", MAX_FINISHED_JOBS)
    started(jobs, "bob")

    kept = {job.job_id for job in jobs.jobs(10_000)}

    assert len(kept) == MAX_FINISHED_JOBS_OF_ALL + 1
    assert kept >= set(few)


def test_jobs_without_documents_erase_no_record_and_leave_none(jobs: JobStore, database: Database) -> None:
    mine = finished(database, "ada", 3)
    ids = [jobs.start("eve").job_id for _ in range(105)]
    for job_id in ids:
        jobs.finish_uploads(job_id)

    assert [job.job_id for job in jobs.jobs(1000)] == mine[::-1]
    assert jobs.changes(ids[-1], 0, 10) == (jobs.job(ids[-1]), ())
    assert jobs.job(ids[-1]).state is JobState.FINISHED
    with pytest.raises(JobNotFound):
        jobs.job(ids[0])


def test_flipped_or_missing_bytes_of_a_waiting_document_are_refused(jobs: JobStore, tmp_path: Path) -> None:
    job = jobs.start("ada")
    flipped = jobs.accept(job.job_id, upload("flipped"))
    (file,) = (tmp_path / "spool").iterdir()
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageCorrupt, match="damaged; send it again"):
        jobs.upload(flipped.ticket).content.read()

    file.unlink()

    with pytest.raises(StorageCorrupt, match="missing from the spool"):
        jobs.upload(flipped.ticket).content.read()


def test_recovery_ends_open_uploads_and_removes_unused_spool_files(database: Database, tmp_path: Path) -> None:
    store = JobStore(database, Spool(tmp_path / "spool", _LIMIT))
    job, other = store.start("ada"), store.start("ada")
    store.accept(job.job_id, upload("a"))
    (tmp_path / "spool" / "ffff.part").write_bytes(b"half")

    store.recover()

    assert len(list((tmp_path / "spool").iterdir())) == 1
    assert store.job(other.job_id).state is JobState.RUNNING
    (following,) = store.waiting("ada", "")
    store.complete(Ticket(following.order), JobDocumentState.ADDED)
    assert store.job(job.job_id).state is JobState.FINISHED
    assert list((tmp_path / "spool").iterdir()) == []
