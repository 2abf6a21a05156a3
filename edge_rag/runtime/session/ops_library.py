"""Where the compiled library of custom ops lies."""

from __future__ import annotations

from pathlib import Path

import edge_rag.ops
from edge_rag.errors import ModelError

LIBRARY_NAME = "libedge_rag_ops.so"


def ops_library() -> Path:
    """Returns the library that was built when the package was installed.

    An editable install keeps the sources in the checkout and the library among the installed packages; both are on
    the path of ``edge_rag.ops``.

    Raises:
        ModelError: It was not built.
    """
    for folder in edge_rag.ops.__path__:
        library = Path(folder) / LIBRARY_NAME
        if library.is_file():
            return library
    searched = ", ".join(edge_rag.ops.__path__)
    raise ModelError(f"{LIBRARY_NAME} is not in {searched}; build it with `pip install .` or `pip install -e .`")
