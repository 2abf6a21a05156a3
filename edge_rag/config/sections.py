"""What every section of the settings is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def _expanded(path: Path) -> Path:
    return path.expanduser().absolute()


DirectoryPath = Annotated[Path, AfterValidator(_expanded)]
FilePath = Annotated[Path, AfterValidator(_expanded)]


class Section(BaseModel):
    """A table of the settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
