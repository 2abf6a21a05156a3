"""Models in use."""

from __future__ import annotations

import asyncio
from typing import Final

from edge_rag.core.identity import Role
from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.service.call import Call, Operation

USE_MODEL: Final = Operation("UseModel", Role.ADMIN, long=True)


async def use_model(call: Call, role: str, name: str) -> ModelInUse:
    """Fills a role with another model while running. The swap completes even if the caller disconnects.

    Raises:
        InvalidRequest: The role cannot be changed while running.
        ModelNotFound: No model has that name.
        ConfigurationError: It does not fit in memory beside the present one.
        NotReady: Another swap is running, or the daemon is shutting down.
        ModelError: It cannot be opened; the present one stays.
    """
    return await asyncio.shield(asyncio.to_thread(call.backend.use_model, role, name))
