"""A profile whose providers cannot be had: loud, one way or the other."""

import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_rag.client import Client
from edge_rag.core.placement import Provider
from tests.e2e.support.running_daemon import RunningDaemon


def test_a_step_down_is_in_the_status_the_log_and_a_metric(start: Callable[..., RunningDaemon]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = start(config=f'profile = "jetson-thor"\n[metrics]\nport = {port}\n')
    with Client(running.address) as client:
        embedder = client.status().models[0].placement
    assert (embedder.wanted, embedder.used) == (Provider.TENSORRT, Provider.CPU)
    assert "tensorrt cannot be used: " in embedder.reason
    assert "cuda cannot be used: " in embedder.reason
    said = [line for line in running.log.read_text().splitlines() if "stage runs on a fallback provider" in line]
    assert len(said) == 3
    assert all("warning" in line and "wanted=" in line for line in said)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        metrics = page.read().decode()
    assert 'edge_rag_stage_fallback{stage="generator",used="cpu",wanted="cuda"} 1.0' in metrics


def test_where_the_profile_says_to_stop_the_daemon_does_not_start_and_says_how_to_go_on(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('on_unavailable = "stop"\n')
    with pytest.raises(
        AssertionError, match=r"profile: embedder: tensorrt cannot be used: .*; set stages\.embedder\.on_unavailable"
    ):
        start(config=f'profile = "jetson-thor"\nprofile_file = "{file}"\n')
