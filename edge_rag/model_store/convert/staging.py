"""The staging directory in which a model is built, and the subprocesses that convert and open its files."""

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
_STEP_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class StagingDir:
    """A folder on the store's file system in which a model is built.

    Attributes:
        folder: The folder; deleted afterwards.
        progress: Receives the progress.
    """

    folder: Path
    progress: AddProgress

    @property
    def source(self) -> Path:
        """A private copy of the source."""
        return self.folder / "source"

    @property
    def converted(self) -> Path:
        """Output of the converter."""
        return self.folder / "converted"

    @property
    def scratch(self) -> Path:
        """Temporary files of the subprocesses."""
        return self.folder / "scratch"

    @property
    def model(self) -> Path:
        """The finished model folder."""
        return self.folder / "model"

    def step(self, name: str, *arguments: Path | str, program: str = _PREPARATION) -> dict[str, Any]:
        """Runs a step in a subprocess.

        Args:
            name: Name of the step.
            arguments: Its arguments.
            program: Module that has the step.

        Returns:
            Its result, the JSON object in its last line.

        Raises:
            ModelNotAdded: It failed; the message has its output.
        """
        lines = run_python(
            program,
            [name, *map(str, arguments)],
            self.scratch,
            self.progress,
            timeout_s=_STEP_TIMEOUT_S,
            threads=len(os.sched_getaffinity(0)),
        )
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def check_folder(folder: Path) -> None:
    """Checks a folder without a manifest against what its files may contain.

    Raises:
        ModelFolderInvalid: Something is not allowed.
    """
    try:
        check_contents(plain_files(folder), lambda path: (folder / path).read_bytes())
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
