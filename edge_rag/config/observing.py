"""Settings of what the daemon tells about itself."""

from __future__ import annotations

from enum import Enum

from pydantic import Field

from edge_rag.config.sections import DirectoryPath, Section


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
