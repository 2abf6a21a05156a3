"""The official clients of the daemon that serves HTTP."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.support.running_daemon import RunningDaemon


@pytest.fixture
def client(http_daemon: RunningDaemon) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{http_daemon.http}/v1", api_key="any", max_retries=0) as one:
        yield one
