"""Models: which there are, which are recommended, and adding, verifying, choosing and removing them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from edge_rag.core.documents.files import StoredFile
from edge_rag.core.identity import Role
from edge_rag.errors import EdgeRagError, FileNotFound, InvalidRequest
from edge_rag.model_store.jobs import ModelJob, ModelJobState, task_of_adding, task_of_verifying
from edge_rag.model_store.manager import CatalogModel, InstalledModel, NewModel
from edge_rag.model_store.source import GgufSource
from edge_rag.runtime.model_folder.manifest import ModelRole
from edge_rag.service import files
from edge_rag.service.admin.audit import record_change
from edge_rag.service.call import Call, Operation

LIST_INSTALLED_MODELS: Final = Operation("ListInstalledModels", Role.ADMIN)
ADD_MODEL: Final = Operation("AddModel", Role.ADMIN)
VERIFY_MODEL: Final = Operation("VerifyModel", Role.ADMIN)
CHOOSE_MODEL: Final = Operation("ChooseModel", Role.ADMIN, long=True)
REMOVE_MODEL: Final = Operation("RemoveModel", Role.ADMIN)
WATCH_MODEL_JOB: Final = Operation("WatchModelJob", Role.ADMIN, long=True)
CANCEL_MODEL_JOB: Final = Operation("CancelModelJob", Role.ADMIN)

_GGUF: Final = ".gguf"


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model that was chosen for its role.

    Attributes:
        role: The role.
        name: The model.
        is_in_use: Whether it fills the role now; otherwise it does from the next start of the daemon on.
        overridden_by: The model that the settings name for the role, which takes precedence; None if they name none.
        problem: Why the running daemon keeps its model; empty if it does not.
    """

    role: ModelRole
    name: str
    is_in_use: bool
    overridden_by: str | None
    problem: str


async def installed(call: Call) -> tuple[InstalledModel, ...]:
    return await call.run(call.backend.models.installed, await _in_use(call))


async def catalogue(call: Call) -> tuple[CatalogModel, ...]:
    return await call.run(call.backend.models.catalogue)


async def add(call: Call, new: NewModel) -> ModelJob:
    """Starts to add a model. That goes on when the caller is gone."""
    models = call.backend.models
    if bool(new.source) == bool(new.file):
        raise InvalidRequest("source", "or file must be given, and not both")
    source = await _uploaded(call, new.file) if new.file else await call.run(models.source, new.source)
    request = await call.run(models.request, new, source)
    task = task_of_adding(models.store.directory, models.store.builtin, request)
    return await _start(call, lambda end: models.jobs.start(task, end), f"model {request.name} was added from {source}")


async def verify(call: Call, name: str) -> ModelJob:
    """Starts to compare every byte of a model with its manifest. That goes on when the caller is gone."""
    models = call.backend.models
    await call.run(models.store.find, name)
    task = task_of_verifying(models.store.directory, models.store.builtin, name)
    return await _start(call, lambda end: models.jobs.start(task, end), "")


async def choose(call: Call, name: str) -> ChosenModel:
    """Chooses a model for its role after verifying it, as `edge-rag models use` does; goes on when the caller is gone.

    A generator fills its role at once where it fits beside the present one, others from the next start on.
    """
    return await asyncio.shield(asyncio.to_thread(_choose, call, name))


async def remove(call: Call, name: str) -> str:
    """Deletes a model that no role uses; returns its name."""
    in_use = await _in_use(call)

    def removed() -> None:
        call.backend.models.remove(name, in_use)
        record_change(call, f"model {name} was removed")

    await asyncio.shield(asyncio.to_thread(removed))
    return name


def job(call: Call) -> ModelJob | None:
    """Returns the running or last job on models; None before the first since the daemon's start."""
    return call.backend.models.jobs.latest()


async def watch_job(call: Call, number: int, after: int) -> AsyncGenerator[ModelJob, None]:
    """Yields a job on models as it changes; see ``ModelJobs.follow``."""
    async with aclosing(call.backend.models.jobs.follow(number, after)) as states:
        async for state in states:
            yield state


async def cancel_job(call: Call, number: int) -> ModelJob:
    """Ends a job on models, which leaves the store as it was."""
    return await asyncio.shield(asyncio.to_thread(call.backend.models.jobs.cancel, number))


async def _start(call: Call, start: Callable[[Callable[[ModelJob], None]], ModelJob], change: str) -> ModelJob:
    models = call.backend.models

    def ended(job: ModelJob) -> None:
        models.ended(job)
        if change and job.state is ModelJobState.DONE:
            record_change(call, change)

    return await asyncio.shield(asyncio.to_thread(start, ended))


async def _uploaded(call: Call, file_id: str) -> GgufSource:
    file = await files.get(call, file_id)
    if not isinstance(file, StoredFile):
        raise FileNotFound(file_id)
    name = PurePosixPath(file.about.name).name
    if not name.lower().endswith(_GGUF):
        raise InvalidRequest("file", f"must be a GGUF file, whose name ends in {_GGUF}")
    return GgufSource(call.backend.files.content(file).path, name)


async def _in_use(call: Call) -> frozenset[str]:
    status = await asyncio.to_thread(call.backend.status)
    return frozenset(model.name for model in status.models)


def _choose(call: Call, name: str) -> ChosenModel:
    models = call.backend.models
    role = models.store.manifest(name).role
    models.store.use(role, name)
    record_change(call, f"model {name} was chosen as {role.value}")
    explicit = models.explicit(role)
    explicit = None if explicit == name else explicit
    problem, in_use = "", any(model.name == name for model in call.backend.status().models)
    if role is ModelRole.GENERATOR and explicit is None and not in_use:
        try:
            call.backend.use_model(role.value, name)
            in_use = True
        except EdgeRagError as error:
            problem = str(error)
    return ChosenModel(role, name, in_use, explicit, problem)
