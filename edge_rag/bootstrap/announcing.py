"""What the daemon says of itself on the network."""

from __future__ import annotations

import ipaddress

import edge_rag
from edge_rag.bootstrap.network import introduction
from edge_rag.config.settings import Settings
from edge_rag.discovery.announcement import Announcement
from edge_rag.discovery.announcer import Announcer
from edge_rag.errors import AccessError
from edge_rag.server.grpc.listeners import is_local


def make_announcer(settings: Settings, address: str) -> Announcer | None:
    """Returns what announces the daemon; None where it is not to be, or no other machine could reach it.

    Args:
        settings: Checked settings.
        address: The address it listens on, with the port that was picked.
    """
    if not settings.discovery.announce or is_local(address):
        return None
    return Announcer(lambda: announcement(settings, address))


def announcement(settings: Settings, address: str) -> Announcement:
    """Returns what the daemon says of itself, with no addresses where it listens on all.

    Args:
        settings: Checked settings.
        address: The address it listens on, with the port that was picked; one that other machines can reach.

    Raises:
        AccessError: The address is a name, or the certificates cannot be used.
    """
    host, _, port = address.rpartition(":")
    return Announcement(
        name=settings.discovery.box_name(),
        port=int(port),
        version=edge_rag.__version__,
        tls=True,  # no daemon listens to other machines without
        sha256=introduction(settings).fingerprint,
        addresses=_addresses(host.strip("[]")),
    )


def _addresses(host: str) -> tuple[str, ...]:
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise AccessError(f"listen: {host} is a name; to be announced the daemon has to listen on addresses") from error
    return () if address.is_unspecified else (host,)
