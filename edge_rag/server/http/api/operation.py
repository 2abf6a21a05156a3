"""Jobs, and what operators see and do: status, audit log, usage, models, backup; and who the caller is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Final

from edge_rag.core.documents.jobs import Job, JobId, JobPage
from edge_rag.core.identity import Identity
from edge_rag.core.ids import RequestId
from edge_rag.core.limits.request_fields import parse_model_name, parse_request_id
from edge_rag.core.monitoring.event import AuditEntry
from edge_rag.core.monitoring.metrics import UsageReport
from edge_rag.core.monitoring.status import CompletedBackup, DaemonStatus, ModelInUse, StoredBackup
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import Between, JobKey, Legal
from edge_rag.server.http.api.endpoints import fitting
from edge_rag.server.http.credentials import BrowserSession
from edge_rag.service import access, jobs, status
from edge_rag.service.call import Call
from edge_rag.storage.recovery.stored_backups import is_backup_name

_MOST_JOBS: Final = 1000
_MOST_EVENTS: Final = 1000
_MOST_NUMBER: Final = 1 << 53

Number = Annotated[int, Between(0, _MOST_NUMBER)]
"""Number of an event."""


def _backup_name(field: str, value: str) -> str:
    if not is_backup_name(value):
        raise InvalidRequest(field, "must be a time as in 20261123T090501Z.edge-rag")
    return value


BackupName = Annotated[str, Legal(_backup_name, (("pattern", r"^[0-9]{8}T[0-9]{6}Z\.edge-rag$"),))]
"""Name of a backup on the box."""

ModelName = Annotated[
    str, Legal(lambda field, value: parse_model_name(value, field), (("pattern", "^[a-z0-9][a-z0-9._-]{0,63}$"),))
]
"""Name of a model."""

RequestKey = Annotated[
    str, Legal(lambda field, value: parse_request_id(value, field), (("pattern", "^[!-~]{1,128}$"),))
]
"""Id of a request."""


@dataclass(frozen=True, slots=True)
class ListJobsRequest:
    """Which jobs are listed.

    Attributes:
        limit: Most jobs.
    """

    limit: Annotated[int, Between(1, _MOST_JOBS)] = 20


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job.

    Attributes:
        job: Its id.
    """

    job: JobKey


@dataclass(frozen=True, slots=True)
class WatchJobRequest:
    """From where on a job is watched.

    Attributes:
        job: Its id.
        after: Id of the last event seen; 0 for all. The header ``Last-Event-ID`` says the same.
    """

    job: JobKey
    after: Number = 0


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs.

    Attributes:
        jobs: The newest first.
    """

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class OneJob:
    """A job.

    Attributes:
        job: The job.
    """

    job: Job


async def list_jobs(call: Call, request: ListJobsRequest) -> Jobs:
    """Lists the latest jobs that exist for the caller, the newest first."""
    return Jobs(fitting(await jobs.list_latest(call, request.limit)))


async def get_job(call: Call, request: JobRequest) -> OneJob:
    """Returns a job with its counts and the time left."""
    return OneJob(await jobs.get(call, JobId(request.job)))


async def cancel_job(call: Call, request: JobRequest) -> OneJob:
    """Cancels a job: documents that it has not stored are dropped."""
    return OneJob(await jobs.cancel(call, JobId(request.job)))


async def watch_job(call: Call, request: WatchJobRequest) -> AsyncGenerator[JobPage, None]:
    """Sends the history of a job as it happens; ends with the job.

    The id of an event is a cursor: a client that was disconnected gets the events that it has missed.
    """
    async with aclosing(jobs.watch(call, JobId(request.job), request.after)) as pages:
        async for page in pages:
            yield page


async def get_status(call: Call) -> DaemonStatus:
    """Returns the state of the daemon: stages, slots, pages, models, memory, temperatures, latencies."""
    return await status.get_status(call)


@dataclass(frozen=True, slots=True)
class WatchStatusRequest:
    """How often the status is sent.

    Attributes:
        interval_s: Time between two events, seconds.
    """

    interval_s: Annotated[float, Between(0.1, 3600)] = 1.0


async def watch_status(call: Call, request: WatchStatusRequest) -> AsyncGenerator[DaemonStatus, None]:
    """Sends the state of the daemon now and after every interval, until it shuts down."""
    async with aclosing(status.watch_status(call, request.interval_s)) as reports:
        async for report in reports:
            yield report


@dataclass(frozen=True, slots=True)
class ListAuditEventsRequest:
    """A page of the audit log.

    Attributes:
        request_id: Only events of this request.
        before: Number of the event that they come before, as ``next`` of the page before; none for the latest events.
        limit: Most events.
    """

    request_id: RequestKey | None = None
    before: Number | None = None
    limit: Annotated[int, Between(1, _MOST_EVENTS)] = 100


@dataclass(frozen=True, slots=True)
class AuditEvents:
    """A page of the audit log.

    Attributes:
        events: In order of their numbers, the latest last.
        next: Number before which earlier events are; null if no earlier ones are kept.
        dropped_entries: Events of any request that are no longer kept.
    """

    events: tuple[AuditEntry, ...]
    next: int | None
    dropped_entries: int


async def list_audit_events(call: Call, request: ListAuditEventsRequest) -> AuditEvents:
    """Returns decisions about requests with their reasons and numbers, the latest ones first by page."""
    asked = None if request.request_id is None else RequestId(request.request_id)
    page = status.audit_page(call, asked, request.before, request.limit + 1)
    latest_first = fitting(reversed(page.entries[-request.limit :]))
    events = tuple(reversed(latest_first))
    more = len(events) < len(page.entries)
    return AuditEvents(events, events[0].number if more else None, page.dropped_entries)


@dataclass(frozen=True, slots=True)
class FollowAuditRequest:
    """From where on the audit log is followed.

    Attributes:
        request_id: Only events of this request.
        after: Number of the last event seen; 0 for all that are kept. The header ``Last-Event-ID`` says the same.
    """

    request_id: RequestKey | None = None
    after: Number = 0


@dataclass(frozen=True, slots=True)
class EntriesDropped:
    """Events that were no longer kept when they could have been sent.

    Attributes:
        dropped_entries: Their number, of any request.
    """

    dropped_entries: int


async def follow_audit_events(
    call: Call, request: FollowAuditRequest
) -> AsyncGenerator[AuditEntry | EntriesDropped, None]:
    """Sends decisions about requests as they are made. The id of an event is its number."""
    asked = None if request.request_id is None else RequestId(request.request_id)
    async with aclosing(status.audit_events(call, asked, None, True, request.after)) as pages:
        async for page in pages:
            if page.dropped_entries:
                yield EntriesDropped(page.dropped_entries)
            for entry in page.entries:
                yield entry


async def get_usage(call: Call) -> UsageReport:
    """Returns the usage of each client since the daemon started."""
    return status.usage(call)


@dataclass(frozen=True, slots=True)
class Models:
    """Models in use.

    Attributes:
        models: One per role.
    """

    models: tuple[ModelInUse, ...]


@dataclass(frozen=True, slots=True)
class UseModelRequest:
    """Which model fills a role.

    Attributes:
        role: The role, for example ``generator``.
        name: Name of the model.
    """

    role: str
    name: ModelName


@dataclass(frozen=True, slots=True)
class OneModel:
    """A model in use.

    Attributes:
        model: The model.
    """

    model: ModelInUse


async def list_models(call: Call) -> Models:
    """Returns the models in use, one per role."""
    return Models(await status.models(call))


async def use_model(call: Call, request: UseModelRequest) -> OneModel:
    """Fills a role with another model while running; answers in progress end with the present one."""
    return OneModel(await status.use_model(call, request.role, request.name))


async def backup(call: Call) -> AsyncGenerator[bytes, None]:
    """Sends a consistent backup of all documents as a tar archive.

    It starts when all data has been checked. A response that ends without its last chunk is not a backup;
    ``edge-rag restore`` checks the archive again.
    """
    async with aclosing(status.backup(call)) as chunks:
        async for chunk in chunks:
            yield chunk


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """A backup on the box.

    Attributes:
        backup: Its name.
    """

    backup: BackupName


@dataclass(frozen=True, slots=True)
class OneBackup:
    """A backup on the box.

    Attributes:
        backup: The backup.
    """

    backup: StoredBackup


@dataclass(frozen=True, slots=True)
class BackupList:
    """The backups on the box.

    Attributes:
        backups: The newest first.
        most: How many are kept; one more replaces the oldest.
        last: The latest complete backup, stored here or sent; null if there was none.
    """

    backups: tuple[StoredBackup, ...]
    most: int
    last: CompletedBackup | None


@dataclass(frozen=True, slots=True)
class DeletedBackup:
    """A backup that was deleted.

    Attributes:
        deleted: Its last state.
    """

    deleted: StoredBackup


async def make_backup(call: Call) -> OneBackup:
    """Makes a backup on the box, and returns when it is complete. The oldest of too many is deleted."""
    return OneBackup(await status.make_backup(call))


async def list_backups(call: Call) -> BackupList:
    """Lists the backups on the box, and when the latest of all was complete."""
    backups = call.backend.backups
    return BackupList(await status.list_backups(call), backups.keep, backups.last)


async def read_backup(call: Call, request: BackupRequest) -> AsyncGenerator[bytes, None]:
    """Sends a backup of the box, which ``edge-rag restore`` takes."""
    async with aclosing(status.read_backup(call, request.backup)) as chunks:
        async for chunk in chunks:
            yield chunk


async def delete_backup(call: Call, request: BackupRequest) -> DeletedBackup:
    """Deletes a backup of the box."""
    return DeletedBackup(await status.delete_backup(call, request.backup))


async def who_am_i(call: Call) -> Identity:
    """Returns the caller with its roles, collections and quota."""
    return call.identity


@dataclass(frozen=True, slots=True)
class PairRequest:
    """A one-time code, as ``edge-rag pair`` shows it.

    Attributes:
        key: Its first 4 symbols.
        secret: Its last 12 symbols.
    """

    key: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Paired:
    """A new client.

    Attributes:
        name: Its name.
        token: Its token, which is shown only here.
        authority: Certificate of the box's authority, PEM.
        server_name: Name in the box's certificate.
        box: Name of the box, for people.
    """

    name: str
    token: str = field(repr=False)
    authority: str
    server_name: str
    box: str


async def pair(call: Call, request: PairRequest) -> Paired:
    """Exchanges a one-time code for a token. It needs TLS, and no credentials."""
    paired = await access.pair(call, request.key, request.secret)
    server = paired.server_identity
    return Paired(paired.identity.name, paired.token, server.authority.decode("ascii"), server.server_name, paired.box)


@dataclass(frozen=True, slots=True)
class SignInRequest:
    """The credentials of a browser: one of the two.

    Attributes:
        token: A token.
        code: A one-time code, as ``edge-rag pair`` shows it; a token is made for this browser.
    """

    token: str | None = field(default=None, repr=False)
    code: str | None = field(default=None, repr=False)


async def sign_in(call: Call, request: SignInRequest, session: BrowserSession) -> Identity:
    """Begins the session of a browser, by a cookie, and returns the caller. It needs TLS, and no credentials."""
    signed_in = await access.sign_in(call, request.token, request.code)
    session.begin(signed_in.token, signed_in.is_paired, signed_in.expires)
    return signed_in.identity


@dataclass(frozen=True, slots=True)
class SignedOut:
    """The end of a session.

    Attributes:
        token_revoked: Whether the token was revoked: one that a code has made for this browser is of no use to others.
    """

    token_revoked: bool


async def sign_out(call: Call, session: BrowserSession) -> SignedOut:
    """Ends the session of the browser."""
    revoked = await access.sign_out(call, session.token, session.is_paired)
    session.end()
    return SignedOut(revoked)
