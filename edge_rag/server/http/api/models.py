"""Installed and recommended models: added, verified, chosen and removed by administrators."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Final

from edge_rag.core.limits.request_fields import parse_text
from edge_rag.errors import InvalidRequest
from edge_rag.model_store.jobs import ModelJob
from edge_rag.model_store.manager import CatalogModel, InstalledModel, NewModel
from edge_rag.model_store.source import ModelPrecision
from edge_rag.runtime.model_folder.manifest import ModelRole
from edge_rag.server.http.api.decode import Legal
from edge_rag.server.http.api.operation import ModelName, Number
from edge_rag.service.admin import models
from edge_rag.service.admin.models import ChosenModel
from edge_rag.service.call import Call

_MAX_SOURCE_CHARACTERS: Final = 512
_MAX_LICENCE_CHARACTERS: Final = 128
_JOB_NUMBER: Final = re.compile(r"[1-9][0-9]{0,15}")


def _text(most: int) -> Legal:
    return Legal(lambda field, value: parse_text(field, value, most), (("maxLength", most),))


def _job_number(field: str, value: str) -> str:
    if not _JOB_NUMBER.fullmatch(value):
        raise InvalidRequest(field, "must be the number of a job on models")
    return value


JobNumber = Annotated[str, Legal(_job_number, (("pattern", f"^{_JOB_NUMBER.pattern}$"),))]
"""Number of a job on models, in decimal digits."""


@dataclass(frozen=True, slots=True)
class InstalledModels:
    """Installed models.

    Attributes:
        installed: Built-in ones first.
        job: The running or last job on models since the daemon's start; null before the first.
    """

    installed: tuple[InstalledModel, ...]
    job: ModelJob | None


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """Recommended models.

    Attributes:
        models: Language models, embedders, then cross-encoders, each in the order in which they are proposed.
    """

    models: tuple[CatalogModel, ...]


@dataclass(frozen=True, slots=True)
class AddModelRequest:
    """A model to add: either `source` or `file` is given.

    Attributes:
        source: Name of a model of the catalogue, `hf:owner/name`, or `ollama:name`. Folders and files of the box are
            added with the command line.
        file: Id of a GGUF file that was sent to `/v1/files`.
        name: Its name on the box; that of the source by default.
        precision: Precision of converted weights; the smallest form that passes by default.
        role: Refuse a model of another role.
        licence: Its licence, an SPDX expression; that of the model card by default.
        accept_loss: Whether it is added although quantizing changes its results too much.
    """

    source: Annotated[str | None, _text(_MAX_SOURCE_CHARACTERS)] = None
    file: Annotated[str | None, _text(64)] = None
    name: ModelName | None = None
    precision: ModelPrecision | None = None
    role: ModelRole | None = None
    licence: Annotated[str | None, _text(_MAX_LICENCE_CHARACTERS)] = None
    accept_loss: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model.

    Attributes:
        model: Its name.
    """

    model: ModelName


@dataclass(frozen=True, slots=True)
class ModelJobRequest:
    """A job on models.

    Attributes:
        job: Its number.
    """

    job: JobNumber


@dataclass(frozen=True, slots=True)
class WatchModelJobRequest:
    """From where on a job on models is watched.

    Attributes:
        job: Its number.
        after: Id of the last event seen; 0 for the present state. The header ``Last-Event-ID`` says the same.
    """

    job: JobNumber
    after: Number = 0


@dataclass(frozen=True, slots=True)
class OneModelJob:
    """A job on models.

    Attributes:
        job: The job.
    """

    job: ModelJob


@dataclass(frozen=True, slots=True)
class RemovedModel:
    """A model that was removed.

    Attributes:
        removed: Its name.
    """

    removed: str


async def list_installed_models(call: Call) -> InstalledModels:
    """Lists the models that can fill a role, and the job that adds or verifies one."""
    found = await models.installed(call)
    return InstalledModels(found, models.job(call))


async def list_recommended_models(call: Call) -> ModelCatalog:
    """Lists the models of the catalogue, with their needs and whether this machine meets them."""
    return ModelCatalog(await models.catalogue(call))


async def add_model(call: Call, request: AddModelRequest) -> OneModelJob:
    """Starts to add a model: it is fetched, checked, converted, and compared with the original.

    One model is added or verified at a time; that goes on when the client disconnects.
    """
    new = NewModel(
        request.source or "",
        request.file or "",
        request.name or "",
        request.precision,
        request.role,
        request.licence or "",
        request.accept_loss,
    )
    return OneModelJob(await models.add(call, new))


async def verify_model(call: Call, request: ModelRequest) -> OneModelJob:
    """Starts to compare every byte of a model with its manifest."""
    return OneModelJob(await models.verify(call, request.model))


async def choose_model(call: Call, request: ModelRequest) -> ChosenModel:
    """Chooses a model for its role, also for later starts of the daemon, after comparing it with its manifest.

    A generator that fits beside the present one is in use at once; others are from the next start on.
    """
    return await models.choose(call, request.model)


async def remove_model(call: Call, request: ModelRequest) -> RemovedModel:
    """Deletes a model that no role uses."""
    return RemovedModel(await models.remove(call, request.model))


async def watch_model_job(call: Call, request: WatchModelJobRequest) -> AsyncGenerator[ModelJob, None]:
    """Sends the state of a job on models as it changes; ends with the job."""
    async with aclosing(models.watch_job(call, int(request.job), request.after)) as states:
        async for state in states:
            yield state


async def cancel_model_job(call: Call, request: ModelJobRequest) -> OneModelJob:
    """Ends a job on models, which leaves the store as it was."""
    return OneModelJob(await models.cancel_job(call, int(request.job)))
