"""The questions that programs are compared on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from scripts.bench.harness.workload import Corpus, PassageLoad, Trace
from scripts.bench.reuse.__main__ import EXACT, PASSAGE, Row, best_peer, bounds, make_trace
from scripts.bench.reuse.serving import Plan, Trial, find_rate, measure, warm

LOAD = PassageLoad(passages=20, passage_tokens=8, system_tokens=4, question_tokens=3, answer_tokens=2)


def test_equal_seeds_ask_the_same_in_every_order_of_passages() -> None:
    rank, ours = (make_trace(LOAD, order, 3, 200, covers=False) for order in ("rank", "ours"))
    assert rank.prompts.shape == ours.prompts.shape == (200, LOAD.prompt_tokens)
    assert np.array_equal(rank.gaps, ours.gaps)
    assert np.array_equal(np.sort(rank.prompts, axis=1), np.sort(ours.prompts, axis=1))
    assert not np.array_equal(rank.prompts, ours.prompts)
    assert np.array_equal(rank.prompts, make_trace(LOAD, "rank", 3, 200, covers=False).prompts)


def test_our_order_makes_more_prompts_begin_alike() -> None:
    def beginnings(order: str) -> int:
        prompts = make_trace(LOAD, order, 0, 400, covers=False).prompts[:, : LOAD.system_tokens + LOAD.passage_tokens]
        return len(np.unique(prompts[200:], axis=0))

    assert beginnings("ours") < beginnings("rank")


def test_passages_are_drawn_by_the_law() -> None:
    asked = Counter(p for question in Corpus(LOAD, 1).questions(4000) for p in question.passages)
    ranked = [count for _, count in asked.most_common()]
    assert len(ranked) == LOAD.passages
    assert ranked[0] > 2.2 * ranked[3]
    assert all(len(set(question.passages)) == LOAD.per_prompt for question in Corpus(LOAD, 1).questions(50))


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = make_trace(LOAD, "ours", 0, 5, covers=True)
    trace.write(tmp_path / "trace.npz")
    again = Trace.read(tmp_path / "trace.npz")
    assert np.array_equal(again.prompts, trace.prompts)
    assert np.array_equal(again.cover, trace.cover)
    assert np.array_equal(again.gaps, trace.gaps)
    sizes = (again.system_tokens, again.passage_tokens, again.question_tokens, again.answer_tokens, again.room)
    assert sizes == (4, 8, 3, 2, LOAD.prompt_tokens + 2)


class AtOnce:
    """A server whose every answer is there at the next turn."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self.prompts: list[NDArray[np.int64]] = []
        self._said: Iterator[tuple[int, bool]] = iter(())
        self._waiting: list[int] = []

    def submit(self, number: int, prompt: NDArray[np.int64], answer_tokens: int) -> None:
        self.taken.append((number, answer_tokens))
        self.prompts.append(prompt)
        self._waiting.append(number)

    def turn(self, wait_s: float) -> list[tuple[int, bool]]:
        said, self._waiting = [(number, last) for number in self._waiting for last in (False, True)], []
        return said


def test_rates_rise_until_there_are_no_more_trials_and_no_request_is_used_twice() -> None:
    plan = Plan(4, alone=3, flood=6, trial_s=1e-9, least=5, p95_s=60.0, begin=0.5, factor=2.0, most_trials=3)
    trace, server = make_trace(LOAD, "rank", 0, plan.requests(1.0), covers=True), AtOnce()
    warm(server, trace, plan)
    assert sorted(map(tuple, trace.cover[:, 4:-3].reshape(-1, 8))) == sorted(map(tuple, Corpus(LOAD, 0).texts))
    assert [tokens for _, tokens in server.taken] == [1] * (len(trace.cover) + 4)
    server.taken.clear()
    served = measure(server, trace, plan)
    assert [tokens for _, tokens in server.taken[:6]] == [1] * 6
    assert [tokens for _, tokens in server.taken[6:]] == [LOAD.answer_tokens] * 21
    assert [number for number, _ in server.taken[12:]] == list(range(16, plan.requests(1.0)))
    assert [trial.requests for trial in served.trials] == [5, 5, 5]
    rates = [trial.rate / served.flood_rate for trial in served.trials]
    assert rates == pytest.approx([0.5, 1.0, 2.0])
    assert served.best == served.trials[-1].rate


def test_passages_asked_about_again_come_with_other_questions() -> None:
    plan = Plan(0, alone=2, flood=1, trial_s=1e-9, least=1, p95_s=60.0, begin=0.5, factor=2.0, most_trials=1)
    trace, server = make_trace(LOAD, "ours", 1, plan.requests(1.0), covers=False), AtOnce()
    measure(server, trace, plan)
    first, again = np.split(np.array(server.prompts[:4]), 2)
    assert np.array_equal(first[:, :-3], again[:, :-3])
    assert not (first[:, -3:] == again[:, -3:]).all(axis=1).any()


def test_rates_fall_where_none_is_borne_and_nothing_comes_any_more_once_that_is_certain() -> None:
    plan = Plan(0, alone=1, flood=1, trial_s=1e-9, least=40, p95_s=-1.0, begin=0.5, factor=2.0, most_trials=3)
    served = measure(AtOnce(), make_trace(LOAD, "rank", 0, plan.requests(1.0), covers=False), plan)
    assert [trial.rate / served.flood_rate for trial in served.trials] == pytest.approx([0.5, 0.25, 0.125])
    assert all(trial.requests < 40 for trial in served.trials)
    assert not any(trial.kept for trial in served.trials)
    assert served.best == 0


@pytest.mark.parametrize(("bears", "tried"), [(3e3, [1e3, 4e3, 2e3]), (1.5e2, [1e3, 2.5e2, 62.5, 125.0])])
def test_the_last_trial_lies_between_a_rate_that_was_borne_and_one_that_was_not(
    bears: float, tried: list[float]
) -> None:
    plan = Plan(0, alone=1, flood=1, trial_s=1.0, least=2, p95_s=2.0, begin=0.5, factor=4.0, most_trials=9)
    trials, best = find_rate(lambda rate: Trial(rate, 2, 0, 0.0, 0.0, kept=rate <= bears), 1e3, plan)
    assert [trial.rate for trial in trials] == tried
    assert best == max(rate for rate in tried if rate <= bears)


def row(program: str, order: str, seed: int, best: float, next_s: float, again_s: float) -> Row:
    return Row(program, order, seed, best, next_s, again_s, 1.0, 1.0, [])


def test_a_bound_is_kept_against_the_better_order_of_the_better_peer() -> None:
    rows = [
        row("openvino", "rank", 0, 0.8, 1.0, 0.1),
        row("openvino", "ours", 0, 1.0, 1.0, 0.1),
        row("openvino", "ours", 1, 1.1, 1.0, 0.1),
        row("openvino", "ours", 2, 0.9, 1.0, 0.1),
        row("llama.cpp", "ours", 0, 0.3, 2.0, 0.2),
        row(EXACT, "rank", 0, 1.5, 0.4, 0.3),
        row(EXACT, "ours", 0, 2.0, 0.4, 0.05),
        row(PASSAGE, "ours", 0, 4.9, 0.09, 0.2),
    ]
    assert best_peer(rows) == 1.0
    assert [kept for _, kept in bounds(rows)] == [True, False, True, True]
    assert not any(kept for _, kept in bounds([]))
