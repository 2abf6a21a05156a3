"""The service layer works without a transport: a second one needs no change below it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_whole_ask_an_ingest_and_refused_calls_need_no_grpc(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "tests.unit.service.without_grpc", str(tmp_path)]
    ran = subprocess.run(
        script, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
