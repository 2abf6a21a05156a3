"""What the command line's exit codes mean."""

from __future__ import annotations

from enum import IntEnum

from edge_rag.client import CallStatus, ClientError
from edge_rag.errors import ConfigurationError, EdgeRagError, NotFound


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    REFUSED = 5
    DEADLINE = 6
    INTERRUPTED = 130


_BY_STATUS = {
    CallStatus.INVALID_ARGUMENT: ExitCode.USAGE,
    CallStatus.OUT_OF_RANGE: ExitCode.USAGE,
    CallStatus.UNAVAILABLE: ExitCode.UNREACHABLE,
    CallStatus.NOT_FOUND: ExitCode.NOT_FOUND,
    CallStatus.ALREADY_EXISTS: ExitCode.REFUSED,
    CallStatus.RESOURCE_EXHAUSTED: ExitCode.REFUSED,
    CallStatus.FAILED_PRECONDITION: ExitCode.REFUSED,
    CallStatus.PERMISSION_DENIED: ExitCode.REFUSED,
    CallStatus.UNAUTHENTICATED: ExitCode.REFUSED,
    CallStatus.DEADLINE_EXCEEDED: ExitCode.DEADLINE,
}

_CODES = {ExitCode.USAGE: "USAGE", ExitCode.NOT_FOUND: "NOT_FOUND"}


def exit_code(error: EdgeRagError | ClientError) -> ExitCode:
    """Returns the exit code that an error stands for."""
    if isinstance(error, ClientError):
        return _BY_STATUS.get(error.status, ExitCode.FAILURE)
    if isinstance(error, NotFound):
        return ExitCode.NOT_FOUND
    return ExitCode.USAGE if isinstance(error, ConfigurationError) else ExitCode.FAILURE


def error_object(error: EdgeRagError | ClientError) -> dict[str, str]:
    """Returns an error as it appears in JSON: the gRPC status by name (or the kind of error) and the message."""
    if isinstance(error, ClientError):
        return {"code": error.status.value, "message": str(error)}
    return {"code": _CODES.get(exit_code(error), "FAILURE"), "message": str(error)}
