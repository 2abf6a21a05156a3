"""Settings of what holds the daemon back where the board suffers."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from edge_rag.config.sections import DirectoryPath, Section


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
