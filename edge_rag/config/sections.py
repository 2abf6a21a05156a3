"""What every section of the settings is made of.

Settings of the models.

Settings of what the daemon tells about itself.

Settings of what holds the daemon back where the board suffers.

Settings of how the box is found.

Settings of what the network may do.
"""

from __future__ import annotations

import socket
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from edge_rag.config.paths import default_models_directory


def _expanded(path: Path) -> Path:
    return path.expanduser().absolute()


DirectoryPath = Annotated[Path, AfterValidator(_expanded)]
FilePath = Annotated[Path, AfterValidator(_expanded)]


class Section(BaseModel):
    """A table of the settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Section):
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


class LogSettings(Section):
    """The log, on standard error."""

    level: LogLevel = Field(default=LogLevel.INFO, description="Least severity that is logged.")
    format: LogFormat = Field(default=LogFormat.CONSOLE, description="Lines for people or JSON for machines.")
    text: bool = Field(
        default=False, description="Whether text of questions and documents may go into it, with messages of errors."
    )


class AuditSettings(Section):
    """The trail of decisions about questions."""

    entries: int = Field(default=10_000, ge=1, le=1_000_000, description="Decisions kept in memory.")
    file: DirectoryPath | None = Field(
        default=None, description="File that decisions are appended to as JSON lines; left out, none."
    )
    file_mib: int = Field(default=16, ge=1, le=4096, description="Size from which on a new file is begun, MiB.")
    files_kept: int = Field(default=4, ge=1, le=100, description="Older files that are kept.")


class MetricSettings(Section):
    """Prometheus metrics."""

    port: int | None = Field(
        default=None, ge=1, le=65535, description="Loopback port to serve them on; left out, none."
    )


class TraceSettings(Section):
    """OpenTelemetry traces of calls; need the extra `traces`."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s]+(/\S*)?$",
        description="URL of a collector that takes OTLP over HTTP; left out, nothing is traced.",
    )
    ratio: float = Field(
        default=1, ge=0, le=1, description="Share of the calls that are traced, where the client does not decide it."
    )


class ThrottleSettings(Section):
    """Doing less where the board is hot, takes too much power or runs out of memory."""

    heat: bool = Field(default=True, description="Whether fewer requests run at once while the board is too hot.")
    celsius: float | None = Field(
        default=None, gt=0, le=150, description="Above this temperature it is; left out, the device profile says."
    )
    resume_celsius: float | None = Field(
        default=None, gt=0, le=150, description="Below this one no more; left out, the device profile says."
    )
    watts: float | None = Field(
        default=None,
        gt=0,
        description="Most power to take, where the board measures it; left out, the device profile says.",
    )
    memory: bool = Field(default=True, description="Whether caches and batch requests give way while memory is short.")
    interval_seconds: float = Field(
        default=2, ge=0.05, le=60, description="Time between two looks at the board, seconds."
    )
    root: DirectoryPath = Field(
        default_factory=lambda: Path("/"),
        description="Where `sys` and `proc` are; a copy elsewhere serves to try out what a suffering board would do.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> ThrottleSettings:
        if (self.celsius is None) != (self.resume_celsius is None):
            raise ValueError("celsius and resume_celsius go together")
        if self.celsius is not None and self.resume_celsius is not None and self.resume_celsius >= self.celsius:
            raise ValueError("resume_celsius must be lower than celsius")
        return self


_MOST_NAME_BYTES = 56
"""An instance of DNS-SD has 63; a second box of the name gets a number behind it."""


class DiscoverySettings(Section):
    """How other machines find this one."""

    announce: bool = Field(
        default=True, description="Whether this box is announced by multicast DNS where it listens to other machines."
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        pattern=r"^[^\x00-\x1f\x7f.\\]+$",
        description="Name of this box, for people who look for it; left out, the host's.",
    )

    @field_validator("name")
    @classmethod
    def _fits(cls, name: str | None) -> str | None:
        if name is not None and len(name.encode()) > _MOST_NAME_BYTES:
            raise ValueError(f"must be at most {_MOST_NAME_BYTES} bytes of UTF-8")
        return name

    def box_name(self) -> str:
        """Returns the name of this box."""
        return self.name or socket.gethostname().partition(".")[0][:_MOST_NAME_BYTES] or "edge-rag"


class LimitSettings(Section):
    """What one client may take of the daemon, so that there is something left for the others."""

    question_characters: int = Field(default=8192, ge=1, le=1_000_000, description="Longest question, characters.")
    request_seconds: float = Field(
        default=300,
        gt=0,
        description="Longest time of a call, also where its client allows more or none, seconds.",
    )
    long_call_seconds: float = Field(
        default=86_400,
        gt=0,
        description="The same of calls that bring documents in, follow, back up or move what there is, seconds.",
    )
    concurrent_calls: int = Field(
        default=256, ge=1, description="Most calls served at once, of one address at most three times what is free."
    )
    slow_client_seconds: float = Field(
        default=30, gt=0, le=3600, description="How long a client may leave unread what it is sent, seconds."
    )
    event_buffer: int = Field(
        default=64, ge=2, le=65_536, description="Pieces of an answer that wait for its reader before it is paused."
    )
    message_mib: int = Field(default=16, ge=1, le=1024, description="Largest message taken, MiB.")
    metadata_kib: int = Field(default=16, ge=4, le=1024, description="Most metadata of a call, KiB.")
    streams_per_connection: int = Field(
        default=384, ge=1, description="Most calls at once over one connection; its client keeps further ones back."
    )
    connections: int = Field(default=1024, ge=1, description="Most connections at once; more are closed.")
    connections_per_address: int = Field(
        default=128, ge=1, description="Most of them that come from one address; the newest are closed."
    )
    keepalive_seconds: float = Field(
        default=60,
        ge=1,
        description="Silence on a connection after which it is asked for a sign of life, seconds.",
    )
    keepalive_timeout_seconds: float = Field(
        default=20, ge=1, description="How long that may take to come before the connection is closed, seconds."
    )
    min_ping_interval_seconds: float = Field(
        default=10, ge=0, description="Shortest time between two pings of a client; who pings more is cut off, seconds."
    )
    idle_seconds: float = Field(
        default=900, ge=1, description="How long a connection may be without calls before it is closed, seconds."
    )
    drain_seconds: float = Field(
        default=10, ge=0, le=3600, description="How long calls may go on after the daemon was told to stop, seconds."
    )


class TlsSettings(Section):
    """TLS, for addresses that other machines reach."""

    certificate: FilePath | None = Field(
        default=None,
        description="Certificate, PEM; left out, the credential systemd passed, else the one of `tls init`.",
    )
    key: FilePath | None = Field(default=None, description="Its private key, PEM; goes with the certificate.")
    client_authority: FilePath | None = Field(
        default=None, description="Who signs clients' certificates, PEM; left out, the authority of `tls init`."
    )
    authority: FilePath | None = Field(
        default=None,
        description="Who signed the certificate, PEM, for `pair` to hand out; left out, the authority of `tls init`.",
    )
    client_certificates: bool = Field(default=False, description="Whether clients must show a certificate.")
    always: bool = Field(default=False, description="Whether loopback addresses get TLS and credentials as well.")

    @model_validator(mode="after")
    def _goes_together(self) -> TlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self


class AccessSettings(Section):
    """Who may call over TLS."""

    tokens: FilePath | None = Field(
        default=None, description="File of tokens; left out, the one in the data directory that `token create` writes."
    )
