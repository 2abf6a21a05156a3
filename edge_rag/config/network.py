"""Settings of what the network may do."""

from __future__ import annotations

from pydantic import Field, model_validator

from edge_rag.config.sections import FilePath, Section


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
    unread_seconds: float = Field(
        default=30, gt=0, le=3600, description="How long a client may leave unread what it is sent, seconds."
    )
    unread_events: int = Field(
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
        default=60, ge=1, description="Silence on a connection after which it is asked for a sign of life, seconds."
    )
    keepalive_timeout_seconds: float = Field(
        default=20, ge=1, description="How long that may take to come before the connection is closed, seconds."
    )
    ping_seconds: float = Field(
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
