"""Settings of how the box is found."""

from __future__ import annotations

import socket

from pydantic import Field

from edge_rag.config.section import Section


class DiscoverySettings(Section):
    """How other machines find this one."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=48,
        pattern=r"^[^\x00-\x1f\x7f.\\]+$",
        description="Name of this box, for people who look for it; left out, the host's.",
    )

    def box_name(self) -> str:
        """Returns the name of this box."""
        return self.name or socket.gethostname().partition(".")[0] or "edge-rag"
