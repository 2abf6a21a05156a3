"""Where a daemon listens and clients call unless they are configured otherwise."""

from __future__ import annotations

from typing import Final

DEFAULT_ADDRESS: Final = "127.0.0.1:7421"
ADDRESS_VARIABLE: Final = "EDGE_RAG_SERVER"
"""Environment variable with the address that clients call."""
