"""The comparison with other engines: its arithmetic, its reading of what programs leave, and programs that fail."""

from __future__ import annotations

import io
import json
import os
import select
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from edge_rag.model_store.convert.comparison import LogitComparison
from scripts.bench.harness.command import ROOT
from scripts.bench.harness.processes import ProgramFailed, run_program
from scripts.bench.kernels.ceilings import Ceilings
from scripts.bench.kernels.decoder import DecoderSize
from scripts.bench.peers import contenders as peers
from scripts.bench.peers.__main__ import compare, earlier, prepare
from scripts.bench.peers.contenders import DECODER, OPENVINO, Contender
from scripts.bench.peers.figures import Figures, median_figures, read_figures, write_figures
from scripts.bench.peers.load import Load
from scripts.bench.peers.report import Form, as_json, best_of_others, figures_table, limits, limits_as_json, markdown

TINY = ROOT / "tests" / "fixtures" / "tiny-qwen2"
OURS = Figures(decode_many=300.0, decode_one=90.0, prefill=2000.0, peak_memory=400 * 2**20, load=0.5)
THEIRS = Figures(decode_many=200.0, decode_one=100.0, prefill=1000.0, peak_memory=800 * 2**20, load=5.0)
LOAD = Load(threads=1, context=64, sequences=2, steps=3, step_tokens=48)
RUN_OURS = "scripts.bench.peers.run_edge_rag"


def printed(*tables: object) -> str:
    console = Console(file=io.StringIO(), width=250)
    console.print(*tables)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_each_measure_has_a_median_of_its_own() -> None:
    rounds = [Figures(1, 6, 5, 10, 1), Figures(2, 4, 9, 30, 1), Figures(3, 5, 1, 20, 1)]
    assert median_figures(rounds) == Figures(2, 5, 5, 20, 1)


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_figures(OURS, tmp_path / "figures.json")
    assert read_figures(tmp_path / "figures.json") == OURS


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


def test_tables_show_medians_ranges_and_ratios_of_medians() -> None:
    rounds = {DECODER: [OURS, OURS], "peer": [THEIRS, Figures(100, 100, 1000, 800 * 2**20, 5)]}
    forms = {DECODER: Form("INT4", LogitComparison(9, 0.955, 0.0033, 0.4)), "peer": Form("Q4_0", None)}
    allowed = {"decode_many": 400.0, "decode_one": 100.0, "prefill": 4000.0}
    table = printed(figures_table(rounds, LOAD, forms, allowed))
    assert "150, 38% (100 to 200)" in table
    assert "KL 0.0033, same token 95.5%" in table
    assert "could not be compared" in table
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


def test_an_earlier_run_is_added_to_only_if_model_and_load_are_the_same(tmp_path: Path) -> None:
    about = {"model": "some.gguf", "load": asdict(LOAD)}
    rounds, ceilings = {DECODER: [OURS, THEIRS]}, Ceilings(1.0, 2.0)
    forms = {DECODER: Form("INT4", LogitComparison(9, 0.955, 0.0033, 0.4)), "peer": Form("Q4_0", None)}
    found = about | as_json(rounds, LOAD, {}, forms) | limits_as_json(rounds, ceilings, {"prefill": 4000.0})
    assert found["shares"] == {DECODER: {"prefill": 0.375}}
    (tmp_path / "earlier.json").write_text(json.dumps(found))
    assert earlier(tmp_path / "earlier.json", about) == (rounds, forms, ceilings)
    with pytest.raises(SystemExit, match="another model"):
        earlier(tmp_path / "earlier.json", about | {"model": "other.gguf"})
    with pytest.raises(SystemExit, match="not the JSON"):
        earlier(tmp_path / "missing.json", about)


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


def test_an_environment_lacks_what_is_absent_or_of_another_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "BENCH", tmp_path)
    environment = peers.Environment("some", {"right-one": "1.0", "old_one[extra]": "2.0", "absent": "3.0"})
    packages = environment.folder / "lib" / "python3.11" / "site-packages"
    for name, version in (("Right_One", "1.0"), ("old_one", "1.9")):
        described = packages / f"{name}-{version}.dist-info" / "METADATA"
        described.parent.mkdir(parents=True)
        described.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    assert environment.missing == ("old_one[extra]==2.0", "absent==3.0")
    assert peers.IK_LLAMA.missing[0] == "libik_llama.so"


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
