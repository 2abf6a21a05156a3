"""Reloads settings while the daemon runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edge_rag.bootstrap.network import make_access, pairing_service, request_limits, tls_options, token_file
from edge_rag.config.sections import LogFormat
from edge_rag.config.settings import Settings, changed_keys, with_reloadable
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.server.listeners import TlsOptions
from edge_rag.service.authentication import Authenticator
from edge_rag.service.limits import Timeouts
from edge_rag.telemetry.logs import configure_logging


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """Result of a reload."""

    changed: tuple[str, ...]
    need_restart: tuple[str, ...]


class ReloadableServer(Protocol):
    """A server of one transport."""

    def reload(self, limits: RequestLimits, tls: TlsOptions | None) -> None:
        """Applies other limits to later requests, and other certificates to new connections."""
        ...


class SettingsReloader:
    """Applies reloadable settings to a running daemon. For one event loop.

    Args:
        authenticator: Takes tokens.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        servers: Sequence[ReloadableServer],
        timeouts: Timeouts,
        authenticator: Authenticator,
    ) -> None:
        self._current = settings
        self._read = read
        self._servers = servers
        self._timeouts = timeouts
        self._authenticator = authenticator

    def reload(self) -> ReloadResult:
        """Reads the settings and applies those that need no restart."""
        read = self._read()
        following = with_reloadable(self._current, read)
        make_access(following)
        for server in self._servers:
            server.reload(request_limits(following), tls_options(following))
        self._timeouts.set(following.limits.request_seconds, following.limits.long_call_seconds)
        self._authenticator.replace(token_file(following), pairing_service(following))
        configure_logging(following.log.level.value, following.log.format is LogFormat.JSON, following.log.text)
        result = ReloadResult(changed_keys(self._current, following), changed_keys(following, read))
        self._current = following
        return result
