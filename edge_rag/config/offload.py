"""Settings of what other machines compute."""

from __future__ import annotations

import ipaddress
from enum import Enum
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from edge_rag.config.sections import FilePath, Section
from edge_rag.core.placement import OffloadMode, OffloadUse


class RemoteKind(Enum):
    """What a remote is."""

    EDGE_RAG = "edge-rag"
    OPENAI = "openai"


class RemoteSettings(Section):
    """Another machine that may compute for this one."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$", description="What it is called in status and trail.")
    kind: RemoteKind = Field(default=RemoteKind.EDGE_RAG, description="`edge-rag` or `openai`.")
    address: str = Field(
        min_length=1,
        description="HOST:PORT of an edge-rag, or box:NAME to look for it; base URL of an OpenAI-compatible server.",
    )
    authority: FilePath | None = Field(default=None, description="Who signed its certificate, PEM.")
    fingerprint: str | None = Field(
        default=None,
        pattern=r"^([0-9A-Fa-f]{2}:?){32}$",
        description="SHA-256 of its certificate, instead of an authority.",
    )
    credential: FilePath | None = Field(default=None, description="File of the token that is shown to it.")
    uses: tuple[OffloadUse, ...] = Field(
        default=(OffloadUse.GENERATE,),
        min_length=1,
        description="What for: `generate` writes answers; `embed` and `rerank` need an edge-rag with the same models.",
    )
    model: str | None = Field(default=None, min_length=1, description="Model to ask an OpenAI-compatible server for.")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.authority is not None and self.fingerprint is not None:
            raise ValueError("authority and fingerprint exclude each other")
        if (self.kind is RemoteKind.OPENAI) != (self.model is not None):
            raise ValueError("kind openai needs a model, and no other kind has one")
        if self.kind is RemoteKind.OPENAI and set(self.uses) != {OffloadUse.GENERATE}:
            raise ValueError("uses: an OpenAI-compatible server is used to generate only")
        if len(set(self.uses)) != len(self.uses):
            raise ValueError("uses: one of them is named twice")
        encrypted = self.authority is not None or self.fingerprint is not None
        if self.kind is RemoteKind.OPENAI:
            url = urlsplit(self.address)
            if url.scheme not in ("http", "https") or not url.hostname:
                raise ValueError(f"address {self.address!r} is not http(s)://HOST:PORT/PATH")
            if (url.scheme == "https") != encrypted:
                raise ValueError("https and one of authority and fingerprint go together")
            host = url.hostname
        elif self.address.startswith("box:"):
            host = self.address
        else:
            host, colon, port = self.address.rpartition(":")
            if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"address {self.address!r} is neither HOST:PORT nor box:NAME")
        if not encrypted and not _is_loopback(host.strip("[]")):
            raise ValueError("authority or fingerprint is needed: documents leave a box over TLS only")
        return self


class OffloadSettings(Section):
    """Other machines that compute; for collections that allow it (`collections update NAME --offload allowed`)."""

    mode: OffloadMode = Field(
        default=OffloadMode.NEVER,
        description="`overflow` asks them when this box would be late, `prefer-remote` always, `race` asks both.",
    )
    remotes: tuple[RemoteSettings, ...] = Field(
        default_factory=tuple, max_length=32, description="The machines, a table each."
    )
    first_token_timeout_seconds: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Longest wait for first text, vectors or ranks of one, seconds; less with a near deadline.",
    )
    stall_seconds: float = Field(
        default=2.0,
        gt=0,
        le=600,
        description="Silence in the middle of an answer from which on this box goes on, seconds.",
    )
    breaker_failures: int = Field(
        default=3, ge=1, le=100, description="Consecutive failures that open the breaker of a remote."
    )
    breaker_open_seconds: float = Field(
        default=2.0,
        gt=0,
        le=3600,
        description="How long it is left alone, seconds; twice as long after each failed try.",
    )
    redact: tuple[str, ...] = Field(
        default_factory=tuple,
        max_length=256,
        description="Regular expressions (RE2) of what leaves as placeholders where a collection's rule is `redacted`.",
    )
    when_throttled: bool = Field(
        default=True,
        description="Whether mode `overflow` asks others while heat or power hold this box back (`throttle`).",
    )
    on_battery: bool = Field(default=False, description="Whether mode `overflow` asks others while on battery.")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [remote.name for remote in self.remotes]
        if len(set(names)) != len(names):
            raise ValueError("two remotes have the same name")
        if self.mode is not OffloadMode.NEVER and not names:
            raise ValueError(f"mode {self.mode.value} needs remotes")
        return self


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
