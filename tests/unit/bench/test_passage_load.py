"""The questions that programs are compared on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.bench.passages.serving import Plan, measure
from scripts.bench.passages.workload import Corpus, PassageLoad, Trace
from scripts.bench.reuse import make_trace

LOAD = PassageLoad(passages=20, passage_tokens=8, system_tokens=4, question_tokens=3, answer_tokens=2)


def test_equal_seeds_ask_the_same_in_every_order_of_passages() -> None:
    rank, ours = (make_trace(LOAD, order, 3, 200) for order in ("rank", "ours"))
    assert rank.prompts.shape == ours.prompts.shape == (200, LOAD.prompt_tokens)
    assert np.array_equal(rank.gaps, ours.gaps)
    assert np.array_equal(np.sort(rank.prompts, axis=1), np.sort(ours.prompts, axis=1))
    assert not np.array_equal(rank.prompts, ours.prompts)
    assert np.array_equal(rank.prompts, make_trace(LOAD, "rank", 3, 200).prompts)


def test_our_order_makes_more_prompts_begin_alike() -> None:
    def beginnings(order: str) -> int:
        prompts = make_trace(LOAD, order, 0, 400).prompts[:, : LOAD.system_tokens + LOAD.passage_tokens]
        return len(np.unique(prompts[200:], axis=0))

    assert beginnings("ours") < beginnings("rank")


def test_passages_are_drawn_by_the_law() -> None:
    asked = Counter(p for question in Corpus(LOAD, 1).questions(4000) for p in question.passages)
    ranked = [count for _, count in asked.most_common()]
    assert len(ranked) == LOAD.passages
    assert ranked[0] > 2.2 * ranked[3]
    assert all(len(set(question.passages)) == LOAD.per_prompt for question in Corpus(LOAD, 1).questions(50))


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = make_trace(LOAD, "ours", 0, 5)
    trace.write(tmp_path / "trace.npz")
    again = Trace.read(tmp_path / "trace.npz")
    assert np.array_equal(again.prompts, trace.prompts)
    assert np.array_equal(again.gaps, trace.gaps)
    assert again.answer_tokens == trace.answer_tokens


class AtOnce:
    """A server whose every answer is there at the next turn."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self._said: Iterator[tuple[int, bool]] = iter(())
        self._waiting: list[int] = []

    def submit(self, number: int, prompt: NDArray[np.int64], answer_tokens: int) -> None:
        self.taken.append((number, answer_tokens))
        self._waiting.append(number)

    def turn(self, wait_s: float) -> list[tuple[int, bool]]:
        said, self._waiting = [(number, last) for number in self._waiting for last in (False, True)], []
        return said


def test_rates_rise_until_there_are_no_more_trials_and_no_request_is_used_twice() -> None:
    plan = Plan(warm=4, light=3, light_rate=1e4, trial=5, p95_s=60.0, first_rate=1e4, factor=2.0, most_trials=3)
    server = AtOnce()
    served = measure(server, make_trace(LOAD, "rank", 0, plan.requests), plan)
    assert [number for number, _ in server.taken] == list(range(plan.requests))
    assert [tokens for _, tokens in server.taken] == [1] * 4 + [LOAD.answer_tokens] * (plan.requests - 4)
    assert len(served.trials) == 3
    assert served.best == 4e4


def test_rates_fall_until_one_is_borne() -> None:
    plan = Plan(warm=0, light=1, light_rate=1e4, trial=5, p95_s=-1.0, first_rate=1e4, factor=2.0, most_trials=3)
    served = measure(AtOnce(), make_trace(LOAD, "rank", 0, plan.requests), plan)
    assert len(served.trials) == 3
    assert served.best == 0
