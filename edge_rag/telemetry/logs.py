"""Structured logs on standard error, without text of questions and documents unless a setting allows it.

Exception messages and variables of frames may contain such text. Logs therefore have only classes and code locations of
exceptions, and messages only of errors made of names and numbers.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import structlog

from edge_rag.core.visible_text import escape_invisible
from edge_rag.errors import AccessError, ConfigurationError, ModelFolderInvalid, StorageError

TEXT_KEYS: Final = frozenset({"question"})
"""Keys whose values are text of questions or documents."""

_WITHOUT_TEXT: Final = (AccessError, ConfigurationError, ModelFolderInvalid, StorageError, OSError)

_MAX_FRAMES: Final = 50


def configure_logging(level: str, json_lines: bool, text: bool = False) -> None:
    """Configures logging of this process; may be called again.

    Args:
        json_lines: JSON lines instead of lines for people.
    """
    threshold: int = getattr(logging, level.upper())
    # JSON lines are ASCII.
    renderers: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if not json_lines:
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        renderers = [_visible, console]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_text if text else _without_text,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.getLogger().handlers = [_Relay(text)]
    logging.getLogger().setLevel(max(threshold, logging.WARNING))


def _without_text(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in TEXT_KEYS & event.keys():
        del event[key]
    error = _exception(event.pop("exc_info", None))
    if error is not None:
        event["exception"] = "\n".join(_locations(error))
    return event


def _with_text(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    error = _exception(event.pop("exc_info", None))
    if error is not None:
        event["exception"] = "".join(traceback.format_exception(error)).rstrip()
    return event


def _visible(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            shown = escape_invisible(value)
            event[key] = shown if key == "exception" else shown.replace("\n", "\\n")
    return event


def _exception(info: Any) -> BaseException | None:
    if isinstance(info, BaseException):
        return info
    found = info[1] if isinstance(info, tuple) else sys.exc_info()[1] if info else None
    return found if isinstance(found, BaseException) else None


def _locations(error: BaseException) -> Iterator[str]:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _locations(before)
    for frame in traceback.extract_tb(error.__traceback__, limit=-_MAX_FRAMES):
        yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    yield f"{kind}: {error}" if isinstance(error, _WITHOUT_TEXT) else kind


class _Relay(logging.Handler):
    """Passes log records of libraries to structlog, without arguments and exception messages if text is withheld."""

    def __init__(self, text: bool) -> None:
        super().__init__()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage() if self._text else str(record.msg)
        event = message if self._text else message.partition("\n")[0]
        log = structlog.get_logger().error if record.levelno >= logging.ERROR else structlog.get_logger().warning
        log(event, library=record.name, exc_info=record.exc_info)
