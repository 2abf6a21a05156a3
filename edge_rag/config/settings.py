"""Settings of the daemon, read from a TOML file, the environment and the command line.

Unknown keys are rejected. `with_reloadable` says which settings can change while the daemon runs.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from edge_rag.config.offload import OffloadSettings
from edge_rag.config.paths import default_data_directory
from edge_rag.config.sections import (
    AccessSettings,
    AuditSettings,
    BackupSettings,
    DirectoryPath,
    DiscoverySettings,
    FilePath,
    HttpSettings,
    LimitSettings,
    LogSettings,
    MetricSettings,
    ModelSettings,
    ThrottleSettings,
    TlsSettings,
    TraceSettings,
)
from edge_rag.config.stages import GeneratorSettings, IngestSettings, RerankerSettings, RetrieverSettings
from edge_rag.config.unknown_keys import line_of, siblings, suggestion, unknown_variables, variable_of
from edge_rag.core.address import DEFAULT_ADDRESS
from edge_rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MIB = 1 << 20
_PREFIX = "EDGE_RAG_"
_DELIMITER = "__"


class Settings(BaseSettings):
    """All settings of the daemon. Sources, strongest first: command line, environment, file, defaults."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter=_DELIMITER,
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    listen: str = Field(
        default=DEFAULT_ADDRESS,
        description="Address to listen on, HOST:PORT or unix:PATH. An address other than loopback needs TLS and "
        "credentials. Port 0 chooses a free port.",
    )
    local_listen: str | None = Field(
        default=None,
        description="Second address for programs on this host, without TLS: a loopback HOST:PORT, or unix:PATH.",
    )
    data_directory: DirectoryPath = Field(
        default_factory=default_data_directory, description="Directory of documents, indexes and added models."
    )
    profile: str = Field(default="auto", description="Device profile; `auto` detects the board.")
    profile_file: FilePath | None = Field(
        default=None, description="TOML file that overrides keys of the device profile. Unset: none."
    )
    threads: int | None = Field(
        default=None, ge=1, le=256, description="Compute threads. Unset: the device profile decides."
    )
    models: ModelSettings = Field(default_factory=ModelSettings)
    retriever: RetrieverSettings = Field(default_factory=RetrieverSettings)
    reranker: RerankerSettings = Field(default_factory=RerankerSettings)
    generator: GeneratorSettings = Field(default_factory=GeneratorSettings)
    offload: OffloadSettings = Field(default_factory=OffloadSettings)
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    tls: TlsSettings = Field(default_factory=TlsSettings)
    access: AccessSettings = Field(default_factory=AccessSettings)
    discovery: DiscoverySettings = Field(default_factory=DiscoverySettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    backup: BackupSettings = Field(default_factory=BackupSettings)
    metrics: MetricSettings = Field(default_factory=MetricSettings)
    traces: TraceSettings = Field(default_factory=TraceSettings)
    throttle: ThrottleSettings = Field(default_factory=ThrottleSettings)

    @property
    def document_bytes(self) -> int:
        """Largest document, bytes."""
        return self.ingest.document_mib * _MIB


def load_settings(
    config_file: Path | None = None, overrides: Mapping[str, object] | None = None, text: str | None = None
) -> Settings:
    """Reads and validates the settings.

    Args:
        config_file: TOML file, or None for defaults and environment only.
        overrides: Top-level keys from the command line.
        text: Content that the file would get; None reads it.

    Raises:
        ConfigurationError: Names the file and line, or the variable, and the key.
    """
    if text is None:
        text = _read(config_file) if config_file is not None else ""
    values = _parse_toml(config_file, text)
    if unknown := unknown_variables(os.environ, _PREFIX, _DELIMITER, Settings):
        raise ConfigurationError(f"environment: {'; '.join(unknown)}")

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, values)

    try:
        return FromFile(**dict(overrides or {}))  # type: ignore[arg-type]
    except ValidationError as error:
        problems = (_problem(each, overrides or {}, config_file, text) for each in error.errors())
        raise ConfigurationError("; ".join(problems)) from error


def origin_of(path: Sequence[int | str], overrides: Mapping[str, object], file: Path | None, text: str) -> str:
    """Returns where a setting has its value from: the command line, a variable, a line of the file, or its default.

    Args:
        path: Sections and key.
        overrides: Top-level keys from the command line.
        file: The configuration file; None for none.
        text: Its text.
    """
    if path and path[0] in overrides:
        return "command line"
    variable = variable_of(os.environ, _PREFIX, _DELIMITER, path)
    if variable is not None:
        return variable
    line = line_of(text, path)
    return "default" if line is None else f"{file}, line {line}"


def _problem(error: ErrorDetails, overrides: Mapping[str, object], file: Path | None, text: str) -> str:
    path = error["loc"]
    key = ".".join(map(str, path))
    origin = origin_of(path, overrides, file, text)
    if origin == "default":  # an entry of a file whose line is not known, or what settings require together
        origin = "settings" if file is None else str(file)
    if error["type"] == "extra_forbidden":
        return f"{origin}: {key}: no such setting{suggestion(key, siblings(Settings, path))}"
    return f"{origin}: {key}: {error['msg']}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not a TOML file: {error}") from error


def _parse_toml(path: Path | None, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not a TOML file: {error}") from error


def with_reloadable(present: Settings, wanted: Settings) -> Settings:
    """Returns the present settings, with the wanted value of each one that can change while the daemon runs."""
    limits, tls = wanted.limits, wanted.tls
    return present.model_copy(
        update={
            "log": wanted.log,
            "limits": present.limits.model_copy(
                update={
                    "question_characters": limits.question_characters,
                    "request_seconds": limits.request_seconds,
                    "long_call_seconds": limits.long_call_seconds,
                }
            ),
            "tls": present.tls.model_copy(
                update={
                    "certificate": tls.certificate,
                    "key": tls.key,
                    "client_authority": tls.client_authority,
                    "authority": tls.authority,
                }
            ),
            "access": wanted.access,
            "generator": present.generator.model_copy(update={"mode": wanted.generator.mode}),
            "reranker": present.reranker.model_copy(update={"passages": wanted.reranker.passages}),
        }
    )


def changed_keys(one: Settings, other: Settings) -> tuple[str, ...]:
    """Returns the keys with different values in the order of declaration, for example ``limits.request_seconds``."""
    return tuple(_changed_keys(one, other))


def _changed_keys(one: BaseModel, other: BaseModel, prefix: str = "") -> Iterator[str]:
    for name in type(one).model_fields:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, BaseModel) and isinstance(theirs, BaseModel):
            yield from _changed_keys(mine, theirs, f"{prefix}{name}.")
        elif mine != theirs:
            yield f"{prefix}{name}"
