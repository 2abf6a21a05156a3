"""The comparison with other engines: its arithmetic, its reading of what programs leave, and programs that fail."""

from __future__ import annotations

import io
import os
import select
import sys
from pathlib import Path

import pytest
from rich.console import Console

from edge_rag.model_store.convert.comparison import LogitComparison
from scripts.bench.harness.command import ROOT
from scripts.bench.harness.processes import ProgramFailed, run_program
from scripts.bench.kernels.ceilings import Ceilings
from scripts.bench.kernels.decoder import DecoderSize
from scripts.bench.peers import contenders as peers
from scripts.bench.peers.__main__ import compare, prepare
from scripts.bench.peers.contenders import DECODER, OPENVINO, Contender
from scripts.bench.peers.figures import Figures, read_figures
from scripts.bench.peers.load import Load
from scripts.bench.peers.report import Form, best_of_others, limits, markdown

TINY = ROOT / "tests" / "fixtures" / "tiny-qwen2"
OURS = Figures(decode_many=300.0, decode_one=90.0, prefill=2000.0, peak_memory=400 * 2**20, load=0.5)
THEIRS = Figures(decode_many=200.0, decode_one=100.0, prefill=1000.0, peak_memory=800 * 2**20, load=5.0)
LOAD = Load(threads=1, context=64, sequences=2, steps=3, step_tokens=48)
RUN_OURS = "scripts.bench.peers.run_edge_rag"


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", '{"prefill": 1}',
        *(f'{{"decode_many": {value}, "decode_one": 1, "prefill": 1, "peak_memory": 1, "load": 1}}'
          for value in ("0", "-1", "NaN", "Infinity", "true", "null", '"1"')),
    ],
)  # fmt: skip
def test_figures_that_cannot_be_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(content)
    with pytest.raises(ValueError):  # noqa: PT011 (json's own message for what is not JSON)
        read_figures(tmp_path / "figures.json")


def test_the_table_shows_medians_their_share_of_the_limit_and_the_best_of_the_others() -> None:
    rounds = {DECODER: [OURS, OURS], "peer": [THEIRS, Figures(100, 100, 1000, 800 * 2**20, 5)]}
    forms = {DECODER: Form("INT4", LogitComparison(9, 0.955, 0.0033, 0.4)), "peer": Form("Q4_0", None)}
    allowed = {"decode_many": 400.0, "decode_one": 100.0, "prefill": 4000.0}
    lines = markdown(rounds, LOAD, forms, allowed).splitlines()
    assert lines[2] == f"| {DECODER} | INT4 | KL 0.0033, same token 95.5% | 300, 75% | 90.0, 90% | 2,000, 50% | 400 |"
    assert lines[4] == "| limit of the machine | | | 400 | 100 | 4,000 |  |"
    assert lines[5] == f"| {DECODER}, times the best of the others | | | 2.00x | 0.90x | 2.00x | 0.50x |"
    assert len({line.count("|") for line in lines}) == 1


def test_the_best_of_the_others_is_chosen_for_each_measure_among_forms_that_lose_no_more_than_is_accepted() -> None:
    rounds = {DECODER: [OURS], "fast": [THEIRS], "small": [Figures(100, 120, 900, 2**20, 1)], "lossy": [OURS]}
    forms = {"lossy": Form("Q2", LogitComparison(9, 0.6, 0.4, 4)), "fast": Form("Q8", LogitComparison(9, 0.9, 0.02, 1))}
    assert best_of_others(rounds, forms) == Figures(200, 120, 1000, 2**20, 1)
    assert best_of_others({DECODER: [OURS]}, forms) is None


def test_the_limits_of_a_load_are_those_of_memory_or_of_products_whichever_binds() -> None:
    size = DecoderSize(
        weights=1000, head=500, weight_bytes=750, layers=2, query_heads=2, kv_heads=1, head_size=6
    )  # 40 bytes and 48 products for each token of context
    load = Load(threads=1, context=100, sequences=8, steps=2, step_tokens=64)
    found = limits(size, Ceilings(bytes_per_s=1e6, products_per_s=1e9), load)
    assert found["decode_one"] == pytest.approx(1e6 / (750 + 101 * 40))
    assert found["decode_many"] == pytest.approx(8e6 / (750 + 8 * 101 * 40))
    busy = limits(size, Ceilings(bytes_per_s=1e9, products_per_s=1e3), load)
    assert busy["decode_one"] == pytest.approx(1e3 / (1500 + 101 * 48))
    assert busy["prefill"] == pytest.approx(100e3 / (100 * 1000 + 500 + 48 * sum(range(1, 101))))


def test_ours_runs_below_the_engine_and_with_it_while_a_program_that_crashes_is_left_out() -> None:
    chosen = [
        Contender("crashing", None, "scripts.bench.peers.nothing", TINY),
        Contender("decoder", None, RUN_OURS, TINY),
        Contender("engine", None, RUN_OURS, TINY, ("--engine",)),
    ]
    failures: dict[str, str] = {}
    found: dict[str, list[Figures]] = {}
    compare(chosen, LOAD, 2, 120, Console(file=io.StringIO()), found, failures)
    assert {name: len(runs) for name, runs in found.items()} == {"decoder": 2, "engine": 2}
    assert list(failures) == ["crashing"]
    assert "No module named scripts.bench.peers.nothing" in failures["crashing"]


def test_a_peer_that_is_not_installed_is_named_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "BENCH", tmp_path)
    chosen = [one for one in peers.contenders(tmp_path / "some.gguf") if one.environment is OPENVINO]
    failures: dict[str, str] = {}
    assert prepare(chosen, False, None, Console(file=io.StringIO()), failures) == []
    assert set(failures) == {one.name for one in chosen}
    assert all("openvino-genai==" in reason and "--install" in reason for reason in failures.values())


def test_a_program_that_hangs_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "held-open"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(ProgramFailed, match="took longer than 2 s"):
            run_program(["sh", "-c", '(echo started; exec sleep 1000) >"$0" & wait', str(pipe)], tmp_path, 2)
        assert os.read(reader, 100) == b"started\n"
        poll = select.poll()
        poll.register(reader, select.POLLHUP)
        assert poll.poll(60_000), "the hanging program's child lives on"
    finally:
        os.close(reader)


def test_a_program_that_crashes_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match=r"(?s)ended with status 1: .*no such model"):
        run_program([sys.executable, "-c", "raise SystemExit('no such model')"], tmp_path)
    with pytest.raises(ProgramFailed, match="was ended by SIGABRT"):
        run_program([sys.executable, "-c", "import os; os.abort()"], tmp_path)
    with pytest.raises(ProgramFailed, match="cannot be started"):
        run_program([str(tmp_path / "absent")], tmp_path)
