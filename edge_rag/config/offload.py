"""Settings of remotes, the other machines that compute for this one."""

from __future__ import annotations

import ipaddress
from enum import Enum
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from edge_rag.config.sections import FilePath, Section
from edge_rag.core.placement import OffloadMode, OffloadUse


class RemoteKind(Enum):
    """Protocol of a remote."""

    EDGE_RAG = "edge-rag"
    OPENAI = "openai"


class RemoteSettings(Section):
    """Another machine that computes for this one."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$", description="Name of the remote in the status and the audit log."
    )
    kind: RemoteKind = Field(default=RemoteKind.EDGE_RAG, description="`edge-rag` or `openai`.")
    address: str = Field(
        min_length=1,
        description="HOST:PORT of an edge-rag, or box:NAME to discover it; base URL of an OpenAI-compatible server.",
    )
    authority: FilePath | None = Field(default=None, description="Authority that signed the remote's certificate, PEM.")
    fingerprint: str | None = Field(
        default=None,
        pattern=r"^([0-9A-Fa-f]{2}:?){32}$",
        description="SHA-256 of the remote's certificate, instead of an authority.",
    )
    credential: FilePath | None = Field(default=None, description="File of the token sent to the remote.")
    uses: tuple[OffloadUse, ...] = Field(
        default=(OffloadUse.GENERATE,),
        min_length=1,
        description="`generate` writes answers; `embed` embeds documents, by an edge-rag with the same embedder.",
    )
    model: str | None = Field(
        default=None, min_length=1, description="Model to request from an OpenAI-compatible server."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.authority is not None and self.fingerprint is not None:
            raise ValueError("authority and fingerprint exclude each other")
        if (self.kind is RemoteKind.OPENAI) != (self.model is not None):
            raise ValueError("`model` is required for kind openai, and no other kind has one")
        if self.kind is RemoteKind.OPENAI and set(self.uses) != {OffloadUse.GENERATE}:
            raise ValueError("uses: an OpenAI-compatible server supports generate only")
        if len(set(self.uses)) != len(self.uses):
            raise ValueError("uses: an entry is repeated")
        encrypted = self.authority is not None or self.fingerprint is not None
        if self.kind is RemoteKind.OPENAI:
            url = urlsplit(self.address)
            if url.scheme not in ("http", "https") or not url.hostname:
                raise ValueError(f"address {self.address!r} is not http(s)://HOST:PORT/PATH")
            if (url.scheme == "https") != encrypted:
                raise ValueError("https requires authority or fingerprint, and http allows neither")
            host = url.hostname
        elif self.address.startswith("box:"):
            host = self.address
        else:
            host, colon, port = self.address.rpartition(":")
            if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"address {self.address!r} is neither HOST:PORT nor box:NAME")
        if not encrypted and not _is_loopback(host.strip("[]")):
            raise ValueError("authority or fingerprint is required: documents leave this host over TLS only")
        return self


class OffloadSettings(Section):
    """Remotes that compute for this host, for collections that allow it (`--offload allowed`)."""

    mode: OffloadMode = Field(
        default=OffloadMode.NEVER,
        description="`never`; `overflow` uses remotes when this host would miss a deadline; `prefer-remote` always.",
    )
    remotes: tuple[RemoteSettings, ...] = Field(
        default_factory=tuple, max_length=32, description="The remotes, one table each."
    )
    redact: tuple[str, ...] = Field(
        default_factory=tuple,
        max_length=256,
        description="Regular expressions (RE2) of text that is replaced by placeholders in collections with the "
        "rule `redacted`.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [remote.name for remote in self.remotes]
        if len(set(names)) != len(names):
            raise ValueError("two remotes have the same name")
        if self.mode is not OffloadMode.NEVER and not names:
            raise ValueError(f"mode {self.mode.value} requires remotes")
        return self


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
