"""Settings that had another name in an earlier release, with their present names; settings and models that are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from edge_rag.errors import ConfigurationError

RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "generator.curve": "generator.preset",
        "generator.anticipate": "generator.prefetch",
        "limits.unread_seconds": "limits.slow_client_seconds",
        "limits.unread_events": "limits.event_buffer",
        "limits.message_mib": "limits.message_kib",
        "limits.ping_seconds": "limits.min_ping_interval_seconds",
        "offload.first_text_seconds": "offload.first_token_timeout_seconds",
        "offload.failures": "offload.breaker_failures",
        "offload.rest_seconds": "offload.breaker_open_seconds",
    }
)

REMOVED: Final[Mapping[str, str]] = MappingProxyType(
    {"generator.evidence_weight": "quotes are chosen by evidence alone"}
)
"""Settings that are gone, with the reason."""

REMOVED_GENERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "quoter": "quotes need no language model; the modes cite and free do: add one with "
        "`edge-rag models add smollm2-135m` and select it with `edge-rag models use generator NAME`, or remove the name"
    }
)
"""Generators that came along with an earlier release, with what to do. A box that still names one starts without."""


def _problems() -> Iterator[tuple[str, str]]:
    """Yields each old key, and what to say about it."""
    for old, new in RENAMED.items():
        yield old, f"{old} is now {new}"
    for old, reason in REMOVED.items():
        yield old, f"{old} is gone, remove it: {reason}"


def reject_renamed_keys(source: str, values: Mapping[str, Any]) -> None:
    """Rejects a configuration file that uses old keys.

    Args:
        source: The file, for the message.
        values: Its tables.

    Raises:
        ConfigurationError: Names the source, each old key, and its successor or why it is gone.
    """
    found = []
    for old, problem in _problems():
        section, _, key = old.partition(".")
        table = values.get(section)
        if isinstance(table, Mapping) and key in table:
            found.append(problem)
    if found:
        raise ConfigurationError(f"{source}: {'; '.join(found)}")


def reject_renamed_variables(environment: Mapping[str, str], prefix: str, delimiter: str) -> None:
    """Rejects environment variables that set old keys.

    Args:
        environment: Variables by name.
        prefix: What the names of settings start with.
        delimiter: What stands between a section and its key in a name.

    Raises:
        ConfigurationError: Names each variable, its old key, and the successor or why it is gone.
    """
    names = {name.upper(): name for name in environment}
    found = []
    for old, problem in _problems():
        name = names.get(prefix + old.replace(".", delimiter).upper())
        if name is not None:
            found.append(f"{name}: {problem}")
    if found:
        raise ConfigurationError(f"environment: {'; '.join(found)}")
