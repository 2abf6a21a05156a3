"""Structured logs on standard error. Text of questions and documents goes into them only where a setting asks for it.

An exception's message and the variables of its frames may hold such text, whoever raised it. So of an exception the log
has classes and places; messages only of errors that are made of names and numbers.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import structlog

from edge_rag.errors import AccessError, ConfigurationError, ModelFolderInvalid, StorageError

TEXT_KEYS: Final = frozenset({"question"})
"""Keys whose values are text of questions or documents."""

_OF_NAMES_AND_NUMBERS: Final = (AccessError, ConfigurationError, ModelFolderInvalid, StorageError, OSError)

_MOST_FRAMES: Final = 50


def configure_logging(level: str, json_lines: bool, text: bool = False) -> None:
    """Sets the log up for this process; may be called again.

    Args:
        level: Least severity that is logged: ``debug``, ``info``, ``warning`` or ``error``.
        json_lines: JSON for machines instead of lines for people.
        text: Whether text of questions and documents may go into it.
    """
    threshold: int = getattr(logging, level.upper())
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if not json_lines:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _tell if text else _withhold,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.getLogger().handlers = [_Relay(text)]
    logging.getLogger().setLevel(max(threshold, logging.WARNING))


def _withhold(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Takes text out of a line."""
    for key in TEXT_KEYS & event.keys():
        del event[key]
    error = _exception(event.pop("exc_info", None))
    if error is not None:
        event["exception"] = "\n".join(_places(error))
    return event


def _tell(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Writes exceptions out with their messages."""
    error = _exception(event.pop("exc_info", None))
    if error is not None:
        event["exception"] = "".join(traceback.format_exception(error)).rstrip()
    return event


def _exception(info: Any) -> BaseException | None:
    if isinstance(info, BaseException):
        return info
    found = info[1] if isinstance(info, tuple) else sys.exc_info()[1] if info else None
    return found if isinstance(found, BaseException) else None


def _places(error: BaseException) -> Iterator[str]:
    """Yields the classes of an exception and of those that led to it, the first one first, and where they came from."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _places(before)
    for frame in traceback.extract_tb(error.__traceback__, limit=-_MOST_FRAMES):
        yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    yield f"{kind}: {error}" if isinstance(error, _OF_NAMES_AND_NUMBERS) else kind


class _Relay(logging.Handler):
    """What libraries log, as lines of ours: without arguments and exceptions' messages where text is withheld."""

    def __init__(self, text: bool) -> None:
        super().__init__()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage() if self._text else str(record.msg)
        event = said if self._text else said.partition("\n")[0]
        tell = structlog.get_logger().error if record.levelno >= logging.ERROR else structlog.get_logger().warning
        tell(event, library=record.name, exc_info=record.exc_info)
