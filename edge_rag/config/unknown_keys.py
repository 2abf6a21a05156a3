"""Where a setting stands, in a file or in the environment, and which one an unknown key may mean; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel

from edge_rag.core.address import ADDRESS_VARIABLE, COLLECTION_VARIABLE

OTHER_VARIABLES: Final = frozenset(
    {
        # of clients
        ADDRESS_VARIABLE,
        COLLECTION_VARIABLE,
        "EDGE_RAG_CA",
        "EDGE_RAG_CERTIFICATE",
        "EDGE_RAG_KEY",
        "EDGE_RAG_TOKEN_FILE",
        # of scripts, containers and tests of a checkout
        "EDGE_RAG_BOOT_SYSTEMD",
        "EDGE_RAG_EXACT_REQUESTS",
        "EDGE_RAG_MEMORY",
        "EDGE_RAG_OPS_BUILD",
        "EDGE_RAG_SECRET",
        "EDGE_RAG_SHARED",
        "EDGE_RAG_SOAK_SECONDS",
        "EDGE_RAG_SYSTEMCTL",
        "EDGE_RAG_TEST_OPS_LIBRARY",
    }
)
"""Variables that begin as those of settings do, and are none."""

_HEADER: Final = re.compile(r"\s*\[\[?\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


def keys_of(settings: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yields the keys of settings, sections and their keys, for example ``generator.max_slots``."""
    for name, field in settings.model_fields.items():
        yield prefix + name
        if isinstance(section := field.annotation, type) and issubclass(section, BaseModel):
            yield from keys_of(section, f"{prefix}{name}.")


def suggestion(key: str, known: Sequence[str]) -> str:
    """Returns which known key an unknown one may mean, as a question; empty if it resembles none."""
    name = key.rpartition(".")[2]
    same = [each for each in known if each.rpartition(".")[2] == name]
    found = same[:1] or get_close_matches(key, known, 1, 0.75)
    return f"; did you mean {found[0]}?" if found else ""


def unknown_variables(environment: Iterable[str], prefix: str, delimiter: str, settings: type[BaseModel]) -> list[str]:
    """Returns a problem for each variable of an environment that begins as those of settings do and is none."""
    known = {prefix + key.replace(".", delimiter).upper(): key for key in keys_of(settings)}
    problems = []
    for name in sorted(environment):
        upper = name.upper()
        if upper.startswith(prefix) and upper not in known and upper not in OTHER_VARIABLES:
            resembling = get_close_matches(upper, (*known, *OTHER_VARIABLES), 1, 0.8)
            problems.append(f"{name}: no such setting" + (f"; did you mean {resembling[0]}?" if resembling else ""))
    return problems


def siblings(settings: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Returns the keys that are known beside a key, with the path to them, and then all of the settings.

    Args:
        settings: The settings.
        path: Where the key is: sections, numbers of tables in an array, and the key.
    """
    model: type[BaseModel] | None = settings
    for step in path[:-1]:
        if isinstance(step, str) and model is not None:
            field = model.model_fields.get(step)
            model = None if field is None else _model_in(field.annotation)
    before = "".join(f"{step}." for step in path[:-1])
    beside = [] if model is None else [before + name for name in model.model_fields]
    return [*beside, *keys_of(settings)]


def line_of(text: str, path: Sequence[int | str]) -> int | None:
    """Returns the number of the line of a TOML file on which a key or the header of a table stands; None if unsure.

    Args:
        text: The file.
        path: Where the key is, as for ``siblings``.
    """
    wanted = ".".join(str(step) for step in path if isinstance(step, str))
    numbers = [step for step in path if isinstance(step, int)]
    table, seen = "", -1
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = _plain(header[1])
            array = line.lstrip().startswith("[[")
            seen += array
            if table == wanted and not array:
                return number
        elif found := _KEY.match(line):
            key = _plain(f"{table}.{found[1]}" if table else found[1])
            if (key == wanted or wanted.startswith(f"{key}.")) and (not numbers or numbers[0] == seen):
                return number
    return None


def variable_of(environment: Mapping[str, str], prefix: str, delimiter: str, path: Sequence[int | str]) -> str | None:
    """Returns the variable that sets a key or one of its sections; None if there is none."""
    names = {name.upper(): name for name in environment}
    steps = [str(step) for step in path]
    for length in range(len(steps), 0, -1):
        name = names.get(prefix + delimiter.join(steps[:length]).upper())
        if name is not None:
            return name
    return None


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for each in get_args(annotation) if (model := _model_in(each)) is not None), None)
