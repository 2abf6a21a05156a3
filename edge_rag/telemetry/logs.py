"""Structured logs on standard error. Question and document text never goes into them."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level: str, json_lines: bool) -> None:
    """Sets the log up for this process.

    Args:
        level: Least severity that is logged: ``debug``, ``info``, ``warning`` or ``error``.
        json_lines: JSON for machines instead of lines for people.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[structlog.typing.Processor]
    if json_lines:
        renderer = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    else:
        renderer = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
