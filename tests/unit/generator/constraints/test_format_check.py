"""The check of answer formats in a process with limits."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

import psutil
import pytest

from edge_rag.core.limits.limited_process import ProcessAnswer, ProcessFailure
from edge_rag.core.query import JsonSchema, Regex
from edge_rag.errors import InvalidRequest, Overloaded
from edge_rag.generator.constraints.format_check import MOST_WAITING, FormatChecker
from edge_rag.generator.constraints.trial import encode_trial


class Trials:
    """Tries formats as told, and keeps the order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.cost_s: dict[str, float] = {}
        self.gate = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.body: bytes | ProcessFailure = b""

    def __call__(self, message: bytes) -> ProcessAnswer:
        pattern = str(json.loads(message)["regex"])
        self.order.append(pattern)
        asyncio.run_coroutine_threadsafe(self.gate.wait(), self.loop).result(60)
        return ProcessAnswer(self.body, self.cost_s.get(pattern[0], 0.0))


@pytest.fixture
async def checker() -> AsyncIterator[FormatChecker]:
    made = FormatChecker()
    yield made
    made.close()


def no_charge(seconds: float) -> None:
    assert seconds >= 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.to_thread(time.sleep, 0.001)


async def test_formats_are_checked_in_a_process_that_is_kept(checker: FormatChecker) -> None:
    await checker.check(Regex("[a-z]{1,5}"), "a", no_charge)
    first = checker.pid
    await checker.check(JsonSchema('{"type": "integer"}'), "a", no_charge)
    assert checker.pid == first is not None
    with pytest.raises(InvalidRequest, match="regex: unclosed group"):
        await checker.check(Regex("(a"), "a", no_charge)
    with pytest.raises(InvalidRequest, match=r"json_schema: .*colour"):
        await checker.check(JsonSchema('{"type": "colour"}'), "a", no_charge)
    with pytest.raises(InvalidRequest, match="regex: asks for a text of up to 1,000,000 bytes"):
        await checker.check(Regex("(a{1000}){1000}"), "a", no_charge)


async def test_a_process_that_ended_is_replaced(checker: FormatChecker) -> None:
    await checker.check(Regex("ab"), "a", no_charge)
    assert checker.pid is not None
    process = psutil.Process(checker.pid)
    process.kill()
    await checker.check(Regex("cd"), "a", no_charge)
    assert checker.pid not in (None, process.pid)


async def test_an_idle_process_is_ended() -> None:
    checker = FormatChecker(idle_s=0.0)
    await checker.check(Regex("ab"), "a", no_charge)
    await until(lambda: checker.pid is None)
    await checker.check(Regex("cd"), "a", no_charge)
    checker.close()


async def test_closing_ends_the_process() -> None:
    checker = FormatChecker()
    await checker.check(Regex("ab"), "a", no_charge)
    assert checker.pid is not None
    process = psutil.Process(checker.pid)
    checker.close()
    assert not process.is_running()


async def test_the_caller_that_took_least_is_next_and_each_is_charged() -> None:
    trials = Trials()
    trials.cost_s = {"g": 2.0, "m": 0.1}
    checker = FormatChecker(trials)
    charged: dict[str, float] = {"greedy": 0.0, "modest": 0.0}

    def charge(client: str) -> Callable[[float], None]:
        return lambda seconds: charged.__setitem__(client, charged[client] + seconds)

    def ask(client: str, number: int) -> asyncio.Task[None]:
        return asyncio.create_task(checker.check(Regex(f"{client[0]}{number}"), client, charge(client)))

    asked = [ask("greedy", number) for number in range(4)]
    await until(lambda: trials.order == ["g0"])
    asked += [ask("modest", number) for number in range(3)]
    await asyncio.sleep(0)
    trials.gate.set()
    await asyncio.gather(*asked)
    assert trials.order == ["g0", "m0", "m1", "m2", "g1", "g2", "g3"]
    assert charged == pytest.approx({"greedy": 8.0, "modest": 0.3})
    checker.close()


async def test_verdicts_are_cached_and_cost_nothing_again() -> None:
    trials = Trials()
    trials.gate.set()
    trials.body = b"is odd"
    checker = FormatChecker(trials)
    for _ in range(3):
        with pytest.raises(InvalidRequest, match="regex: is odd"):
            await checker.check(Regex("a"), "a", no_charge)
    assert trials.order == ["a"]
    checker.close()


async def test_a_reached_limit_is_a_refusal_and_charged() -> None:
    trials = Trials()
    trials.gate.set()
    trials.body, trials.cost_s = ProcessFailure.MEMORY, {"a": 3.0}
    checker = FormatChecker(trials)
    charged: list[float] = []
    with pytest.raises(InvalidRequest, match="regex: cannot be compiled: it takes too much memory"):
        await checker.check(Regex("a"), "a", charged.append)
    assert charged == [3.0]
    checker.close()


async def test_a_caller_with_too_many_waiting_is_refused_and_others_are_not() -> None:
    trials = Trials()
    checker = FormatChecker(trials)
    asked = [asyncio.create_task(checker.check(Regex(f"a{n}"), "a", no_charge)) for n in range(MOST_WAITING + 1)]
    await until(lambda: trials.order == ["a0"])
    with pytest.raises(Overloaded, match="format check"):
        await checker.check(Regex("one more"), "a", no_charge)
    asked.append(asyncio.create_task(checker.check(Regex("b"), "b", no_charge)))
    trials.gate.set()
    await asyncio.gather(*asked)
    checker.close()


async def test_callers_that_leave_while_waiting_or_while_checked_hold_nobody_up() -> None:
    trials = Trials()
    checker = FormatChecker(trials)
    charged: list[float] = []
    trials.cost_s = {"a": 1.0}
    first = asyncio.create_task(checker.check(Regex("a"), "a", charged.append))
    waiting = [asyncio.create_task(checker.check(Regex(f"b{n}"), "b", no_charge)) for n in range(3)]
    last = asyncio.create_task(checker.check(Regex("c"), "c", no_charge))
    await until(lambda: trials.order == ["a"])
    for task in (first, *waiting):
        task.cancel()
    trials.gate.set()
    await last
    assert trials.order == ["a", "c"]
    assert charged == [1.0]
    await asyncio.gather(first, *waiting, return_exceptions=True)
    checker.close()


def test_the_message_has_one_field() -> None:
    assert json.loads(encode_trial(Regex("é"))) == {"regex": "é"}
