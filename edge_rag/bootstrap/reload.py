"""Settings read again while the daemon runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge_rag.bootstrap.network import call_limits, make_entrance, newcomers, request_limits, token_file
from edge_rag.config.sections import LogFormat
from edge_rag.config.settings import Settings, changed_keys, with_reloadable
from edge_rag.server.authentication import Authenticator
from edge_rag.server.grpc.server import GrpcServer
from edge_rag.telemetry.logs import configure_logging


@dataclass(frozen=True, slots=True)
class Reread:
    """What came of reading the settings again.

    Attributes:
        changed: Keys whose new values are in force.
        need_restart: Keys whose new values wait for the next start.
    """

    changed: tuple[str, ...]
    need_restart: tuple[str, ...]


class SettingsInForce:
    """The settings a daemon runs with, and the parts that some of them can be changed in. For one event loop.

    Args:
        settings: What it was started with.
        read: Reads them again, from where they came from then.
        server: Has limits and certificates.
        doorkeeper: Has the tokens.
    """

    def __init__(
        self, settings: Settings, read: Callable[[], Settings], server: GrpcServer, doorkeeper: Authenticator
    ) -> None:
        self._now = settings
        self._read = read
        self._server = server
        self._doorkeeper = doorkeeper

    def read_again(self) -> Reread:
        """Reads the settings and puts in force what can be.

        Raises:
            ConfigurationError: They are unusable, or would leave an address without TLS or credentials; all stays as
                it was.
            AccessError: A file of certificates or tokens is unusable; all stays as it was.
        """
        wanted = self._read()
        following = with_reloadable(self._now, wanted)
        doors, _ = make_entrance(following)
        self._server.adopt(request_limits(following), call_limits(following), doors.tls)
        self._doorkeeper.use(token_file(following), newcomers(following))
        configure_logging(following.log.level.value, following.log.format is LogFormat.JSON, following.log.text)
        reread = Reread(changed_keys(self._now, following), changed_keys(following, wanted))
        self._now = following
        return reread
