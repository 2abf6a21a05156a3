"""What the files of a model folder may hold; ``model_folder`` has made sure that they are the manifest's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, check_genai_config
from edge_rag.runtime.model_folder.graph_check import LARGEST_GRAPH, check_graph
from edge_rag.runtime.model_folder.strict_json import parse_object

LARGEST_TEXT = 64 << 20
"""Most bytes of a tokenizer, a configuration, a template."""

MOST_FILES = 256
"""Most files of a model folder."""

_TEXTS = frozenset({".json", ".jinja", ".txt", ".md"})
_NOTICES = frozenset({"LICENSE", "LICENCE", "NOTICE", "COPYING"})
_WEIGHTS = frozenset({".data", ".onnx_data"})
_GRAPH = ".onnx"


def check_contents(sizes: Mapping[str, int], read: Callable[[str], bytes]) -> None:
    """Checks every file that something will parse, and that there is nothing but such files and weights.

    Args:
        sizes: Bytes of each file, by path relative to the folder.
        read: Returns a file's content.

    Raises:
        ValueError: Something is not allowed; names the file and what it is.
    """
    check_sizes(sizes)
    for path in sorted(sizes):
        try:
            _check_file(path, sizes, read)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Checks that there are not absurdly many files, and that none that will be parsed is absurdly large.

    Raises:
        ValueError: There are, or one is; names it.
    """
    if len(sizes) > MOST_FILES:
        raise ValueError(f"the folder has {len(sizes)} files, at most {MOST_FILES} are allowed")
    for path, size in sorted(sizes.items()):
        suffix = PurePosixPath(path).suffix
        largest = LARGEST_GRAPH if suffix == _GRAPH else LARGEST_TEXT if suffix in _TEXTS else None
        if largest is not None and size > largest:
            raise ValueError(f"{path}: has {size} bytes, at most {largest} are allowed")


def _check_file(path: str, sizes: Mapping[str, int], read: Callable[[str], bytes]) -> None:
    name, suffix = PurePosixPath(path).name, PurePosixPath(path).suffix
    if suffix in _WEIGHTS:
        return
    if suffix == _GRAPH:
        # Locations of external data are relative to the graph's own folder.
        parent = PurePosixPath(path).parent
        beside = {
            PurePosixPath(other).relative_to(parent).as_posix(): size
            for other, size in sizes.items()
            if PurePosixPath(other).is_relative_to(parent)
        }
        check_graph(read(path), beside)
        return
    if suffix not in _TEXTS and name not in _NOTICES:
        raise ValueError(f"files of this kind ({suffix or 'no suffix'}) are not allowed in a model folder")
    if name == GENAI_CONFIG_FILE:
        graph = check_genai_config(read(path)).graph
        if PurePosixPath(path).parent.joinpath(graph).as_posix() not in sizes:
            raise ValueError(f"names the graph {graph}, which is not a file of the folder")
    elif suffix == ".json":
        parse_object(read(path))
