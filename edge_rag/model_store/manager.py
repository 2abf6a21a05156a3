"""The models of a box for its administrators: which are installed and recommended, and what may be added from afar.

Sources over the network are fewer than on the command line: names of the catalogue, models of the hub and of
a local Ollama store, and GGUF files that the caller has sent. Paths of the box are for the command line alone, because
whoever may name one could have the box read, and copy, what only its owner may.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from edge_rag.config.settings import Settings
from edge_rag.device.hardware import read_memory
from edge_rag.errors import InvalidRequest, ModelError
from edge_rag.model_store.catalog import CATALOG_FILE, CatalogEntry, EncoderEntry, encoder_needs, needs, read_catalog
from edge_rag.model_store.jobs import ModelJob, ModelJobKind, ModelJobs, ModelJobState
from edge_rag.model_store.signature import acceptable_keys
from edge_rag.model_store.source import (
    MODEL_PACKAGES,
    AddRequest,
    ModelPrecision,
    Source,
    check_name,
    default_name,
    is_remote,
    parse_source,
)
from edge_rag.model_store.store import ModelStore, StoredModel, explicit_model, memory_bytes
from edge_rag.runtime.model_folder.manifest import ModelRole


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model that can fill a role.

    Attributes:
        name: Its name.
        role: Its role; None if its manifest cannot be read.
        form: How a language model runs, ``paged`` or ``serial``; empty for others.
        licence: Its licence, an SPDX expression; empty if unknown.
        source: Where it comes from; empty if unknown.
        languages: Its languages, for people; empty if the catalogue does not know the model.
        disk_bytes: Bytes of its files.
        memory_bytes: Memory that it needs, bytes; None if unknown.
        is_builtin: Whether it comes with edge-rag.
        is_chosen: Whether it was chosen for its role; it fills it from the next start on, if not already.
        is_in_use: Whether it fills its role now.
        verified_at: When all its bytes were last compared with its manifest since the daemon started, UTC; None if
            they were not.
        problem: Its known problem; empty for none.
    """

    name: str
    role: ModelRole | None
    form: str
    licence: str
    source: str
    languages: str
    disk_bytes: int
    memory_bytes: int | None
    is_builtin: bool
    is_chosen: bool
    is_in_use: bool
    verified_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A recommended model.

    Attributes:
        name: Its name, by which it is added.
        role: Its role.
        licence: Its licence, an SPDX expression.
        languages: Its languages, for people; empty for language models, whose ``good_for`` says it.
        good_for: Its uses.
        checked: The parts of it that have been run.
        disk_bytes: Bytes of its files.
        memory_bytes: Memory that it needs beside the daemon's, bytes.
        fits: Whether that much memory is available.
        is_builtin: Whether it comes with edge-rag, so that it need not be added.
        is_installed: Whether it was added under its name, or comes with edge-rag.
    """

    name: str
    role: ModelRole
    licence: str
    languages: str
    good_for: str
    checked: str
    disk_bytes: int
    memory_bytes: int
    fits: bool
    is_builtin: bool
    is_installed: bool


@dataclass(frozen=True, slots=True)
class NewModel:
    """A model to add: either ``source`` or ``file`` is given.

    Attributes:
        source: Name of a model of the catalogue, ``hf:owner/name…`` or ``ollama:name…``; empty for a file.
        file: Id of a GGUF file that the caller has sent; empty for a source.
        precision: Precision of converted weights; None for the smallest form that passes.
        accept_loss: Whether it is added although quantizing changes its results too much.
    """

    source: str = ""
    file: str = ""
    name: str = ""
    precision: ModelPrecision | None = None
    role: ModelRole | None = None
    licence: str = ""
    accept_loss: bool = False


class ModelManager:
    """The models of a box. May be used from any thread."""

    def __init__(self, settings: Settings, store: ModelStore, jobs: ModelJobs) -> None:
        self.store = store
        self.jobs = jobs
        self._settings = settings
        self._verified: dict[str, tuple[datetime, str]] = {}

    def installed(self, in_use: frozenset[str]) -> tuple[InstalledModel, ...]:
        """Returns the installed models, built-in ones first.

        Args:
            in_use: Names of the models that fill roles now.
        """
        languages = {entry.name: entry.languages for entry in self._catalog() if isinstance(entry, EncoderEntry)}
        return tuple(self._installed(model, in_use, languages.get(model.name, "")) for model in self.store.models())

    def catalogue(self) -> tuple[CatalogModel, ...]:
        """Returns the recommended models, in the order in which they are proposed."""
        available = read_memory(Path("/")).usable_bytes + psutil.Process().memory_info().rss
        return tuple(self._recommended(entry, available) for entry in self._catalog())

    def source(self, text: str) -> Source:
        """Returns the source that a text from the network names.

        Raises:
            InvalidRequest: It cannot be added over the network, or comes along.
        """
        named = next((entry for entry in self._catalog() if entry.name == text), None)
        if isinstance(named, EncoderEntry) and named.comes_along:
            raise InvalidRequest("source", f"{text} comes with edge-rag and can be chosen at once")
        form = text if named is None else named.source
        if not is_remote(form):
            known = ", ".join(MODEL_PACKAGES)
            raise InvalidRequest(
                "source",
                "must be the name of a model of the catalogue, hf:owner/name, ollama:name or one of "
                f"{known}; folders and files of the box are added with `edge-rag models add PATH` on it",
            )
        return parse_source(form)

    def request(self, new: NewModel, source: Source) -> AddRequest:
        """Returns the request to add a model."""
        by_catalogue = any(entry.name == new.source for entry in self._catalog())
        try:
            name = check_name(new.name or (new.source if by_catalogue else default_name(source)))
        except ModelError as error:
            raise InvalidRequest("name", str(error)) from error
        if self.store.has(name):
            raise InvalidRequest("name", f"there is a model {name} already; remove it first, or give another name")
        return AddRequest(
            source,
            name,
            new.precision,
            new.licence or None,
            new.role,
            acceptable_keys(self._settings.models.trusted_keys, ()),
            new.accept_loss,
        )

    def explicit(self, role: ModelRole) -> str | None:
        """Returns the model that the settings name for a role; None if they name none."""
        return explicit_model(self._settings, self.store, role)

    def ended(self, job: ModelJob) -> None:
        """Remembers the result of a job about a model."""
        is_known = job.state is ModelJobState.DONE or (
            job.state is ModelJobState.FAILED and job.kind is ModelJobKind.VERIFY
        )
        if is_known and job.finished_at is not None:
            self._verified[job.model] = (job.finished_at, job.problem)

    def remove(self, name: str, in_use: frozenset[str]) -> None:
        """Deletes a model.

        Raises:
            ModelNeeded: It is built in, chosen, named by the settings or in use.
        """
        named = {explicit for role in ModelRole if (explicit := self.explicit(role)) is not None}
        self.store.remove(name, in_use | named)
        self._verified.pop(name, None)

    def _catalog(self) -> tuple[CatalogEntry | EncoderEntry, ...]:
        path = self._settings.models.directory / CATALOG_FILE
        if not path.exists():  # a directory of one's own need not have one
            return ()
        catalog = read_catalog(path)
        return (*catalog.generators, *catalog.encoders)

    def _installed(self, model: StoredModel, in_use: frozenset[str], languages: str) -> InstalledModel:
        manifest = model.manifest
        verified_at, problem = self._verified.get(model.name, (None, ""))
        is_in_use = model.name in in_use
        if manifest is None:
            return InstalledModel(
                model.name, None, "", "", "", languages, 0, None, model.builtin, model.chosen, is_in_use, verified_at,
                model.problem,
            )  # fmt: skip
        return InstalledModel(
            name=model.name,
            role=manifest.role,
            form=manifest.form_name,
            licence=manifest.licence,
            source=manifest.source,
            languages=languages,
            disk_bytes=sum(record.bytes for record in manifest.files.values()),
            memory_bytes=memory_bytes(manifest),
            is_builtin=model.builtin,
            is_chosen=model.chosen,
            is_in_use=is_in_use,
            verified_at=verified_at,
            problem=model.problem or problem,
        )

    def _recommended(self, entry: CatalogEntry | EncoderEntry, available: int) -> CatalogModel:
        needed = encoder_needs(entry) if isinstance(entry, EncoderEntry) else needs(entry)
        return CatalogModel(
            name=entry.name,
            role=ModelRole(entry.role),
            licence=entry.licence,
            languages=entry.languages if isinstance(entry, EncoderEntry) else "",
            good_for=entry.good_for,
            checked=entry.checked,
            disk_bytes=needed.disk_bytes,
            memory_bytes=needed.memory_bytes,
            fits=needed.memory_bytes <= available,
            is_builtin=isinstance(entry, EncoderEntry) and entry.comes_along,
            is_installed=self.store.has(entry.name),
        )
