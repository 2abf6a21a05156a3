"""Settings of what holds the daemon back."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edge_rag.config.section import DirectoryPath, Section


class HeatSettings(Section):
    """Heat."""

    sysfs: DirectoryPath = Field(
        default_factory=lambda: Path("/sys"),
        description="Where the kernel shows its sensors; a copy elsewhere serves to try out what heat would do.",
    )
