"""Where a model is made: folders beside the store, and programs that open what nobody has opened before."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_rag.errors import ModelFolderInvalid
from edge_rag.model_store.convert.subprocess import AddProgress, run_python
from edge_rag.model_store.copying import plain_files
from edge_rag.runtime.model_folder.graph_check import check_contents

_PREPARATION = "edge_rag.model_store.convert.prepare_generator"
_STEP_S = 1800.0


@dataclass(frozen=True, slots=True)
class StagingDir:
    """An empty folder of the store's file system, divided up.

    Attributes:
        folder: The folder; gone when the model is made, or not made.
        progress: Is told how far it is.
    """

    folder: Path
    progress: AddProgress

    @property
    def source(self) -> Path:
        """A private copy of what the model is made of."""
        return self.folder / "source"

    @property
    def converted(self) -> Path:
        """What a converter makes of it."""
        return self.folder / "converted"

    @property
    def scratch(self) -> Path:
        """Where programs keep what nobody needs afterwards."""
        return self.folder / "scratch"

    @property
    def model(self) -> Path:
        """The finished folder."""
        return self.folder / "model"

    def step(self, name: str, *arguments: Path | str, program: str = _PREPARATION) -> dict[str, Any]:
        """Runs a step in a process of its own.

        Args:
            name: Which one.
            arguments: Its arguments.
            program: Name of the module that knows it.

        Returns:
            What it found.

        Raises:
            ModelNotAdded: It failed; quotes it.
        """
        lines = run_python(
            program,
            [name, *map(str, arguments)],
            self.scratch,
            self.progress,
            timeout_s=_STEP_S,
            threads=len(os.sched_getaffinity(0)),
        )
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def check_folder(folder: Path) -> None:
    """Checks all that a folder without a manifest holds against what such files may hold.

    Raises:
        ModelFolderInvalid: Something is not allowed; says what.
    """
    try:
        check_contents(plain_files(folder), lambda path: (folder / path).read_bytes())
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
