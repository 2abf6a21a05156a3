"""The daemon's settings: TOML file, environment, command line; every key checked, unknown keys refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from edge_rag.config.paths import default_data_directory, default_models_directory
from edge_rag.core.answer import UnsupportedText
from edge_rag.core.curve import Curve
from edge_rag.core.query import AnswerMode
from edge_rag.errors import ConfigurationError

_MIB = 1 << 20


def _expanded(path: Path) -> Path:
    return path.expanduser().absolute()


DirectoryPath = Annotated[Path, AfterValidator(_expanded)]
FilePath = Annotated[Path, AfterValidator(_expanded)]


class LogFormat(Enum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(Enum):
    """Least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Section):
    """Which models fill which role."""

    directory: DirectoryPath = Field(
        default_factory=default_models_directory,
        description="Folder of the models that came along; those that are added lie in the data directory.",
    )
    embedder: str = Field(
        default="minilm-l6",
        description="Embedding model, there or added; left out, what `models use` chose, else this.",
    )
    reranker: str | None = Field(
        default=None,
        description="Cross-encoder, there or added; left out, what `models use` chose, else token vectors score.",
    )
    generator: str = Field(
        default="quoter", description="Language model, there or added; left out, what `models use` chose, else this."
    )
    trusted_keys: list[DirectoryPath] = Field(
        default=[],
        description="Public keys, PEM files; where there are any, `models add` takes only what one of them has signed.",
    )


class MilvusSettings(_Section):
    """A Milvus that collections can be moved to; needs the extra `milvus`."""

    uri: str | None = Field(
        default=None,
        pattern=r"^(https?://.+|.+\.db)$",
        description="`http(s)://HOST:PORT` of a server, or the path of a milvus-lite file ending in .db; else none.",
    )
    token_file: DirectoryPath | None = Field(
        default=None, description="File that holds `user:password` or an API key; left out, none."
    )
    timeout_seconds: float = Field(default=10, gt=0, le=600, description="Longest time for one call to it, seconds.")


class RetrieverSettings(_Section):
    """The retriever stage."""

    queue: int = Field(default=256, ge=1, description="Most questions that may wait.")
    batch: int = Field(default=16, ge=1, le=256, description="Most questions embedded at once.")
    candidates: int = Field(default=20, ge=1, le=200, description="Passages handed to the reranker.")
    exact_vectors: int = Field(
        default=50_000,
        ge=1000,
        le=10_000_000,
        description="Most passages of a collection that are searched exactly; above, an index on disk is built.",
    )
    milvus: MilvusSettings = Field(default_factory=MilvusSettings)


class RerankerSettings(_Section):
    """The reranker stage."""

    queue: int = Field(default=256, ge=1, description="Most questions that may wait.")
    batch: int = Field(default=4, ge=1, le=64, description="Most questions scored at once.")
    passages: int = Field(
        default=4, ge=1, le=32, description="Passages put into the prompt when the client does not say."
    )


class GeneratorSettings(_Section):
    """The generator stage."""

    queue: int = Field(default=256, ge=1, description="Most requests that may wait for a slot.")
    queue_tokens: int = Field(
        default=262_144, ge=1, description="Most tokens these may come to, prompts and longest answers together."
    )
    mode: AnswerMode = Field(default=AnswerMode.QUOTE, description="Answer mode when the client does not say.")
    curve: Curve = Field(
        default=Curve.BALANCED,
        description="`latency` runs fewer at once and each quicker, `throughput` more at once and each slower.",
    )
    max_slots: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Sequences that run at once; left out, the profile and the curve say.",
    )
    max_step_tokens: int | None = Field(
        default=None,
        ge=16,
        le=8192,
        description="Tokens computed in one step; left out, the profile and the curve say.",
    )
    target_tpot_ms: float | None = Field(
        default=None,
        gt=0,
        description="Wanted time between two tokens, ms; slots are taken away and given back to meet it.",
    )
    aging_seconds: float = Field(
        default=30,
        gt=0,
        description="Time without a slot after which a client's next request rises by a priority class, seconds.",
    )
    kv_memory_mib: int | None = Field(
        default=None,
        ge=1,
        description="Memory for KV pages, MiB; left out, the device profile's share of what is free.",
    )
    evidence_weight: float | None = Field(
        default=None, ge=0, le=10_000, description="Weight of the retrieval evidence against the model in quote mode."
    )
    not_found_below: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Evidence for an answer, 0 to 1, below which there is none, unless the mode is free.",
    )
    unsupported: UnsupportedText = Field(
        default=UnsupportedText.MARK,
        description="Sentences that no document supports in mode cite: `mark` says so, `omit` leaves them out.",
    )
    not_found_text: str = Field(
        default="I could not find that in the documents.", min_length=1, description="Answer when there is no evidence."
    )


class IngestSettings(_Section):
    """Taking documents."""

    queue: int = Field(default=64, ge=1, description="Most documents that may wait.")
    document_mib: int = Field(default=64, ge=1, le=1024, description="Largest document, MiB.")
    spool_mib: int = Field(
        default=1024, ge=1, description="Most that documents accepted for jobs and not stored yet may take, MiB."
    )
    parse_seconds: int = Field(default=60, ge=1, description="Longest time for reading one document, seconds.")
    parse_memory_mib: int = Field(default=1024, ge=128, description="Most memory for reading one document, MiB.")
    scan_languages: str = Field(
        default="eng",
        pattern=r"^[A-Za-z][A-Za-z0-9_]*(\+[A-Za-z][A-Za-z0-9_]*)*$",
        description="Languages of scanned pages, Tesseract's names joined by +; read where Tesseract is installed.",
    )


class LimitSettings(_Section):
    """What a single request may ask for."""

    question_characters: int = Field(default=8192, ge=1, le=1_000_000, description="Longest question, characters.")
    request_seconds: float = Field(default=300, gt=0, description="Deadline of a call that brings none, seconds.")
    concurrent_calls: int = Field(default=256, ge=1, description="Most calls served at once; more are refused.")
    drain_seconds: float = Field(
        default=10, ge=0, le=3600, description="How long calls may go on after the daemon was told to stop, seconds."
    )


class LogSettings(_Section):
    """The log, on standard error."""

    level: LogLevel = Field(default=LogLevel.INFO, description="Least severity that is logged.")
    format: LogFormat = Field(default=LogFormat.CONSOLE, description="Lines for people or JSON for machines.")


class AuditSettings(_Section):
    """The trail of decisions about questions."""

    entries: int = Field(default=10_000, ge=1, le=1_000_000, description="Decisions kept in memory.")
    file: DirectoryPath | None = Field(
        default=None, description="File that decisions are appended to as JSON lines; left out, none."
    )
    file_mib: int = Field(default=16, ge=1, le=4096, description="Size from which on a new file is begun, MiB.")
    files_kept: int = Field(default=4, ge=1, le=100, description="Older files that are kept.")


class MetricSettings(_Section):
    """Prometheus metrics."""

    port: int | None = Field(
        default=None, ge=1, le=65535, description="Loopback port to serve them on; left out, none."
    )


class TlsSettings(_Section):
    """TLS, for addresses that other machines reach."""

    certificate: FilePath | None = Field(
        default=None,
        description="Certificate, PEM; left out, the credential systemd passed, else the one of `tls init`.",
    )
    key: FilePath | None = Field(default=None, description="Its private key, PEM; goes with the certificate.")
    client_authority: FilePath | None = Field(
        default=None, description="Who signs clients' certificates, PEM; left out, the authority of `tls init`."
    )
    client_certificates: bool = Field(default=False, description="Whether clients must show a certificate.")
    always: bool = Field(default=False, description="Whether loopback addresses get TLS and credentials as well.")

    @model_validator(mode="after")
    def _goes_together(self) -> TlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self


class AccessSettings(_Section):
    """Who may call over TLS."""

    tokens: FilePath | None = Field(
        default=None, description="File of tokens; left out, the one in the data directory that `token create` writes."
    )


class Settings(BaseSettings):
    """Everything the daemon can be told. Sources, strongest first: command line, environment, file, defaults."""

    model_config = SettingsConfigDict(
        env_prefix="EDGE_RAG_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    listen: str = Field(
        default="127.0.0.1:7421",
        description="Address, HOST:PORT or unix:PATH; not a loopback one, it needs TLS and credentials. Port 0 picks.",
    )
    local_listen: str | None = Field(
        default=None,
        description="Second address for this box, without TLS: a loopback HOST:PORT, or unix:PATH.",
    )
    data_directory: DirectoryPath = Field(
        default_factory=default_data_directory, description="Where documents and indexes are kept."
    )
    profile: str = Field(default="auto", description="Device profile; `auto` recognizes the board.")
    threads: int | None = Field(
        default=None, ge=1, le=256, description="Threads that compute; left out, the profile says."
    )
    models: ModelSettings = Field(default_factory=ModelSettings)
    retriever: RetrieverSettings = Field(default_factory=RetrieverSettings)
    reranker: RerankerSettings = Field(default_factory=RerankerSettings)
    generator: GeneratorSettings = Field(default_factory=GeneratorSettings)
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    tls: TlsSettings = Field(default_factory=TlsSettings)
    access: AccessSettings = Field(default_factory=AccessSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    metrics: MetricSettings = Field(default_factory=MetricSettings)

    @property
    def document_bytes(self) -> int:
        """Largest document, bytes."""
        return self.ingest.document_mib * _MIB


class _FileValues(PydanticBaseSettingsSource):
    def __init__(self, settings: type[BaseSettings], values: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._values = values

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._values)


def load_settings(config_file: Path | None = None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Reads the settings.

    Args:
        config_file: TOML file, or None for defaults and environment only.
        overrides: Top-level keys from the command line.

    Returns:
        Checked settings.

    Raises:
        ConfigurationError: Names the file and the key.
    """
    values = _read_toml(config_file) if config_file is not None else {}

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
            return init_settings, env_settings, _FileValues(settings_cls, values)

    try:
        return FromFile(**dict(overrides or {}))  # type: ignore[arg-type]
    except ValidationError as error:
        source = str(config_file) if config_file is not None else "settings"
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()
        )
        raise ConfigurationError(f"{source}: {problems}") from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not a TOML file: {error}") from error
