"""The log holds no text of questions or documents unless it is asked to, wherever the text may lurk."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from edge_rag.errors import BrokenDocument, InvalidRequest, StorageError
from edge_rag.telemetry.logs import configure_logging

SECRET = "zanzibar-7741"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handlers, level = logging.getLogger().handlers, logging.getLogger().level
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers = handlers
    logging.getLogger().setLevel(level)


def fail(question: str, error: Exception | None = None) -> None:
    words = question.split()
    try:
        raise error or KeyError(words[0])
    except KeyError as problem:
        raise BrokenDocument(f"at {words}") from problem


def provoke(level: str, json_lines: bool, text: bool) -> None:
    configure_logging(level, json_lines, text)
    log = structlog.get_logger()
    log.debug("question", question=SECRET, characters=len(SECRET))
    for error in (None, InvalidRequest("question", SECRET), ValueError(SECRET)):
        try:
            fail(SECRET, error)
        except Exception:
            log.exception("call failed", request_id="r-1")
    logging.getLogger("some.library").warning("cannot read %s", SECRET)
    logging.getLogger("asyncio").error(f"Task exception was never retrieved\nfuture: <Task exception={SECRET!r}>")


@pytest.mark.parametrize("json_lines", [True, False], ids=["json", "console"])
def test_text_is_withheld_at_every_level_and_places_of_errors_stay(
    capsys: pytest.CaptureFixture[str], json_lines: bool
) -> None:
    for level in ("debug", "info", "warning", "error"):
        provoke(level, json_lines, text=False)
    said = capsys.readouterr().err
    assert SECRET not in said
    assert "KeyError" in said
    assert "edge_rag.errors.BrokenDocument" in said
    assert "test_logs.py" in said
    assert "in fail" in said
    assert "Task exception was never retrieved" in said
    assert "cannot read %s" in said


def test_text_is_logged_if_the_setting_allows_it(capsys: pytest.CaptureFixture[str]) -> None:
    provoke("debug", json_lines=True, text=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(SECRET in json.dumps(line) for line in lines)
    assert len(lines) == 6


def test_errors_of_names_and_numbers_keep_their_messages(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json_lines=True)
    try:
        raise StorageError("the disk is full") from OSError(28, "No space left on device")
    except StorageError:
        structlog.get_logger().exception("call failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "the disk is full" in line
    assert "No space left on device" in line


def test_the_exception_of_an_abandoned_task_is_one_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json_lines=True)

    async def forget() -> None:
        over = asyncio.Event()

        async def broken() -> None:
            over.set()
            raise ValueError(SECRET)

        task = asyncio.create_task(broken())
        await over.wait()
        del task

    asyncio.run(forget())
    (line,) = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert line["library"] == "asyncio"
    assert "ValueError" in line["exception"]
    assert SECRET not in json.dumps(line)


@pytest.mark.parametrize("json_lines", [True, False], ids=["json", "console"])
def test_no_value_steers_a_terminal_or_forges_a_line(capsys: pytest.CaptureFixture[str], json_lines: bool) -> None:
    configure_logging("info", json_lines)
    hostile = "a\x1b[2J\x9b1m\u202e\u200e\U000e0041\nforged line"
    structlog.get_logger().info(hostile, document=hostile)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.removesuffix("\n").isprintable()
    assert said.count("202e") == said.count("forged line") == 2
