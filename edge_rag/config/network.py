"""Settings of what the network may do."""

from __future__ import annotations

from pydantic import Field, model_validator

from edge_rag.config.section import FilePath, Section


class LimitSettings(Section):
    """What a single request may ask for."""

    question_characters: int = Field(default=8192, ge=1, le=1_000_000, description="Longest question, characters.")
    request_seconds: float = Field(default=300, gt=0, description="Deadline of a call that brings none, seconds.")
    concurrent_calls: int = Field(default=256, ge=1, description="Most calls served at once; more are refused.")
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
