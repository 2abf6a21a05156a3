"""A daemon that serves HTTP and holds the sample documents in collection ``default``, with the official clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents, start_daemon

HTTP = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n[limits]\nconcurrent_calls = 4\n'
SLOTS_OF_ONE_CALLER = 3
"""Of the four: the last one is for another caller."""


@pytest.fixture(scope="session")
def http_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("http-daemon")
    with start_daemon(folder / "data", folder / "log", HTTP) as running:
        ingest(running.address, sample_documents())
        yield running


@pytest.fixture
def client(http_daemon: RunningDaemon) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{http_daemon.http}/v1", api_key="any", max_retries=0) as one:
        yield one


@pytest.fixture
async def asynchronous(http_daemon: RunningDaemon) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=f"{http_daemon.http}/v1", api_key="any", max_retries=0) as one:
        yield one
