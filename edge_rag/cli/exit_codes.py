"""Exit codes of the command line, and the errors that they stand for."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeGuard

from edge_rag.errors import ConfigurationError, EdgeRagError, NotFound

if TYPE_CHECKING:
    from edge_rag.client import ClientError


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    REFUSED = 5
    DEADLINE = 6
    TRUNCATED = 7
    INTERRUPTED = 130


_BY_STATUS: Final = {
    "INVALID_ARGUMENT": ExitCode.USAGE,
    "OUT_OF_RANGE": ExitCode.TRUNCATED,
    "UNAVAILABLE": ExitCode.UNREACHABLE,
    "NOT_FOUND": ExitCode.NOT_FOUND,
    "ALREADY_EXISTS": ExitCode.REFUSED,
    "RESOURCE_EXHAUSTED": ExitCode.REFUSED,
    "FAILED_PRECONDITION": ExitCode.REFUSED,
    "PERMISSION_DENIED": ExitCode.REFUSED,
    "UNAUTHENTICATED": ExitCode.REFUSED,
    "DEADLINE_EXCEEDED": ExitCode.DEADLINE,
}
"""By the name of a gRPC status."""

_CODE_NAMES: Final = {ExitCode.USAGE: "USAGE", ExitCode.NOT_FOUND: "NOT_FOUND"}


def exit_code(error: EdgeRagError | ClientError) -> ExitCode:
    if not isinstance(error, EdgeRagError):
        return _BY_STATUS.get(error.status.value, ExitCode.FAILURE)
    if isinstance(error, NotFound):
        return ExitCode.NOT_FOUND
    return ExitCode.USAGE if isinstance(error, ConfigurationError) else ExitCode.FAILURE


def error_json(error: EdgeRagError | ClientError) -> dict[str, str]:
    if not isinstance(error, EdgeRagError):
        return {"code": error.status.value, "message": str(error)}
    return {"code": _CODE_NAMES.get(exit_code(error), "FAILURE"), "message": str(error)}


def is_client_error(error: Exception) -> TypeGuard[ClientError]:
    """Whether an error is the client's; does not import the client, whose errors exist only once it is imported."""
    client = sys.modules.get("edge_rag.client")
    return client is not None and isinstance(error, client.ClientError)
