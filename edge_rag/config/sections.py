"""Sections of the settings: models, observability, backups, throttling, discovery, limits, TLS and access."""

from __future__ import annotations

import re
import socket
from enum import Enum
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from edge_rag.config.paths import default_models_directory
from edge_rag.core.address import DEFAULT_HTTP_ADDRESS
from edge_rag.core.monitoring.schedule import Schedule


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


DirectoryPath = Annotated[Path, AfterValidator(_absolute)]
FilePath = Annotated[Path, AfterValidator(_absolute)]


class Section(BaseModel):
    """A table of the settings. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Section):
    """Models of each role."""

    directory: DirectoryPath = Field(
        default_factory=default_models_directory,
        description="Directory of the models installed with edge-rag. Models added later are stored in the data "
        "directory.",
    )
    embedder: str = Field(
        default="multilingual-e5-small",
        description="Embedding model, installed or added. Unset: the model selected by `models use`, else this one. "
        "`minilm-l6`, for English only, takes less memory and time.",
    )
    reranker: str | None = Field(
        default=None,
        description="Cross-encoder, installed or added. Unset: the model selected by `models use`, else token "
        "vectors are compared.",
    )
    generator: str = Field(
        default="",
        description="Language model, added with `models add`. Empty: the model selected by `models use`, else none; "
        "answers are quoted then, and the modes cite and free are refused.",
    )
    trusted_keys: list[DirectoryPath] = Field(
        default=[],
        description="Public keys, PEM files. If any is set, `models add` accepts only models signed by one of them.",
    )


class LogFormat(Enum):
    """Format of log lines."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(Enum):
    """Lowest severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSettings(Section):
    """The log, on standard error."""

    level: LogLevel = Field(default=LogLevel.INFO, description="Lowest severity that is logged.")
    format: LogFormat = Field(default=LogFormat.CONSOLE, description="`console` for people, `json` for machines.")
    text: bool = Field(
        default=False, description="Allow text of questions and documents, and messages of errors, in the log."
    )


class AuditSettings(Section):
    """The audit log of scheduling events."""

    file: DirectoryPath | None = Field(
        default=None, description="File to append audit events to, as JSON lines. Unset: none."
    )


class BackupSettings(Section):
    """Backups on the box."""

    schedule: str | None = Field(
        default=None,
        description="When a backup is made on the box, tried by restoring it, and kept: a local time of the day as "
        "`02:30`, of the week as `sun 02:30`, or an interval as `12h` or `7d`. The first, and one that was missed, is "
        "made five minutes after the next start. Unset: never.",
    )
    keep: int = Field(
        default=3, ge=1, le=100, description="Backups kept on the box, made by hand or schedule; the oldest go."
    )

    @field_validator("schedule")
    @classmethod
    def _is_a_schedule(cls, value: str | None) -> str | None:
        if value is not None:
            Schedule.parse(value)
        return value


class MetricSettings(Section):
    """Prometheus metrics."""

    port: int | None = Field(
        default=None, ge=1, le=65535, description="Loopback port of the Prometheus endpoint. Unset: no endpoint."
    )


class TraceSettings(Section):
    """OpenTelemetry traces of calls. Needs the extra `traces`."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s]+(/\S*)?$",
        description="URL of an OTLP collector (OTLP over HTTP). Unset: no traces.",
    )


class ThrottleSettings(Section):
    """Reduced load while the board is hot, exceeds its power budget or is short of memory."""

    heat: bool = Field(default=True, description="Run fewer requests at once while the board is too hot.")
    celsius: float | None = Field(
        default=None,
        gt=0,
        le=150,
        description="Temperature above which the board is too hot, degrees Celsius. Unset: the device profile decides.",
    )
    resume_celsius: float | None = Field(
        default=None,
        gt=0,
        le=150,
        description="Temperature below which throttling ends, degrees Celsius. Unset: the device profile decides.",
    )
    watts: float | None = Field(
        default=None,
        gt=0,
        description="Power budget, watts, for boards that measure their power. Unset: the device profile decides.",
    )
    memory: bool = Field(default=True, description="Release caches and preempt batch requests while memory is short.")
    interval_seconds: float = Field(
        default=2, ge=0.05, le=60, description="Interval between two readings of the sensors, seconds."
    )
    root: DirectoryPath = Field(
        default_factory=lambda: Path("/"),
        description="Directory that holds `sys` and `proc`. A copy elsewhere simulates another board.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> ThrottleSettings:
        if (self.celsius is None) != (self.resume_celsius is None):
            raise ValueError("celsius and resume_celsius go together")
        if self.celsius is not None and self.resume_celsius is not None and self.resume_celsius >= self.celsius:
            raise ValueError("resume_celsius must be lower than celsius")
        return self


_MAX_NAME_BYTES = 56
"""Less than the 63 bytes of a DNS-SD instance name, which leaves room for a number that resolves a conflict."""


class DiscoverySettings(Section):
    """Discovery of this host by other machines."""

    announce: bool = Field(
        default=True,
        description="Announce this host by multicast DNS when it listens on an address that other hosts reach.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        pattern=r"^[^\x00-\x1f\x7f.\\]+$",
        description="Name shown to people who search for this host. Unset: the host name.",
    )

    @field_validator("name")
    @classmethod
    def _check_length(cls, name: str | None) -> str | None:
        if name is not None and len(name.encode()) > _MAX_NAME_BYTES:
            raise ValueError(f"must be at most {_MAX_NAME_BYTES} bytes of UTF-8")
        return name

    def box_name(self) -> str:
        """Returns the name to announce."""
        return self.name or socket.gethostname().partition(".")[0][:_MAX_NAME_BYTES] or "edge-rag"


class LimitSettings(Section):
    """Limits of calls and connections."""

    question_characters: int = Field(default=8192, ge=1, le=1_000_000, description="Longest question, characters.")
    request_seconds: float = Field(
        default=300,
        gt=0,
        description="Longest duration of a call, seconds, even if its client sets a longer deadline or none.",
    )
    long_call_seconds: float = Field(
        default=86_400,
        gt=0,
        description="Longest duration of calls that ingest, follow, back up or move data, seconds.",
    )
    concurrent_calls: int = Field(
        default=256,
        ge=1,
        description="Calls of identified callers served at once. One caller gets at most three times the number of "
        "free places.",
    )
    slow_client_seconds: float = Field(
        default=30, gt=0, le=3600, description="Time a client may leave data unread before its call ends, seconds."
    )
    connections: int = Field(
        default=1024,
        ge=1,
        description="Open connections from other hosts. Half of them may be without an authenticated call; the oldest "
        "of these are closed.",
    )
    drain_seconds: float = Field(
        default=10,
        ge=0,
        le=3600,
        description="Time that running calls have to finish after the daemon is asked to stop, seconds.",
    )


HTTP_PACKAGES: Final = ("h11", "python_multipart", "starlette", "uvicorn")
"""Modules of the extra ``http``."""


class HttpSettings(Section):
    """The HTTP server: OpenAI's API shape and documents. Needs the extra `http`."""

    enabled: bool = Field(
        default=True,
        description="Serve HTTP besides gRPC. If neither this nor `http.address` is set, it is not served where the "
        "extra is missing, where the port is taken, or where every other address needs credentials or is a Unix "
        "socket; the log says so.",
    )
    address: str = Field(
        default=DEFAULT_HTTP_ADDRESS,
        description="Address to listen on, HOST:PORT. An address other than loopback needs TLS and credentials, as for"
        " `listen`. Port 0 chooses a free port.",
    )
    hosts: list[str] = Field(
        default=[],
        description="Host names by which clients reach the box without TLS, as a request names it in `Host`. Addresses"
        " and `localhost` are always accepted; any other name could be that of a site that attacks the box.",
    )
    console: bool = Field(default=True, description="Serve the console, a page for browsers, at `/`.")
    trusted_proxies: list[str] = Field(
        default=[],
        description="Addresses or networks of proxies that sign users in. A request from there is one of the client "
        "whose name is in the header `proxy_user_header`, which such a proxy has to set in every request. Needs TLS "
        "between proxy and box, on loopback, too (`tls.always`), because callers without TLS are not identified.",
    )
    proxy_user_header: str = Field(
        default="X-Forwarded-User", description="Header in which those proxies name the user; others' is ignored."
    )

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if value.startswith("unix:") or not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("must be HOST:PORT")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        for each in value:
            try:
                ip_network(each)
            except ValueError as error:
                raise ValueError(f"{each!r} is no address or network: {error}") from error
        return value

    @field_validator("proxy_user_header")
    @classmethod
    def _is_a_header(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", value):
            raise ValueError("must be the name of a header: letters, digits and hyphens")
        return value

    @staticmethod
    def missing_packages() -> tuple[str, ...]:
        """Returns which packages of the extra ``http`` cannot be imported."""
        return tuple(name for name in HTTP_PACKAGES if find_spec(name) is None)

    @property
    def is_default(self) -> bool:
        """Whether nobody asked for HTTP: the daemon starts without it where it cannot be served."""
        return not self.model_fields_set & {"enabled", "address"}

    @field_validator("hosts")
    @classmethod
    def _are_names(cls, value: list[str]) -> list[str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", name):
                raise ValueError(f"{name!r} is not a host name, without a port")
        return value


class TlsSettings(Section):
    """TLS for addresses that other machines reach."""

    certificate: FilePath | None = Field(
        default=None,
        description="Server certificate, PEM. Unset: the systemd credential, else the certificate of `tls init`.",
    )
    key: FilePath | None = Field(
        default=None, description="Private key of the certificate, PEM. Required with `certificate`."
    )
    client_authority: FilePath | None = Field(
        default=None, description="Authority that signs client certificates, PEM. Unset: the authority of `tls init`."
    )
    authority: FilePath | None = Field(
        default=None,
        description="Authority that signed the certificate, PEM; `pair` gives it to clients. Unset: the authority"
        " of `tls init`.",
    )
    client_certificates: bool = Field(default=False, description="Require client certificates.")
    always: bool = Field(default=False, description="Require TLS and credentials on loopback addresses too.")

    @model_validator(mode="after")
    def _is_consistent(self) -> TlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self


class AccessSettings(Section):
    """Credentials of calls over TLS."""

    tokens: FilePath | None = Field(
        default=None, description="File of tokens. Unset: the file in the data directory that `token create` writes."
    )
