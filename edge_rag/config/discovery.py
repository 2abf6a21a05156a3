"""Settings of how the box is found."""

from __future__ import annotations

import socket

from pydantic import Field, field_validator

from edge_rag.config.sections import Section

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
