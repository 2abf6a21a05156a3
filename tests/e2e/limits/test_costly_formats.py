"""Answer formats that are costly to compile, sent to a real daemon beside another caller's work."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import psutil
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import RunningDaemon, status_of

MIB = 1 << 20
CHECKER = "constraints.trial"
GROWTH_MIB = 64
"""Above what eight hostile formats may add to the daemon's resident memory; one of them took 370 MiB."""

COSTLY = [
    {"regex": "(a{1000}){1000}"},
    {"regex": "((a{1000}){1000})?"},
    {"regex": "x?((ab){900}){900}y"},
    {"regex": "((((a{60}){60}){60}){60}){60}"},
    {"json_schema": json.dumps({"type": "string", "pattern": "^a*$", "minLength": 1_000_000})},
    {
        "json_schema": json.dumps(
            {"allOf": [{"type": "string", "pattern": f"^(a{{{n}}})*b$"} for n in (7, 11, 13, 17, 19)]}
        )
    },
    {"json_schema": json.dumps({"allOf": [{"type": "integer", "multipleOf": n} for n in (101, 103, 107, 109)]})},
    {"json_schema": json.dumps({"properties": {"p": {"type": "integer", "multipleOf": 999_983}}})},
]


def ask(address: str, **fields: str) -> tuple[grpc.StatusCode, str]:
    with grpc.insecure_channel(address) as channel:
        form: Any = fields
        request = rag_pb2.AskRequest(question="How often?", mode=rag_pb2.ANSWER_MODE_FREE, **form)
        request.sampling.max_tokens = 24
        request.allow_truncated = True
        try:
            events = list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=120))
        except grpc.RpcError as error:
            return status_of(error)
    assert events[-1].HasField("finished")
    return grpc.StatusCode.OK, "".join(event.text.text for event in events if event.HasField("text"))


def search(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        request = rag_pb2.SearchRequest(query="greasing")
        return len(rag_pb2_grpc.RagStub(channel).Search(request, timeout=120).hits)


def resident_mib(daemon: RunningDaemon) -> float:
    process = psutil.Process(daemon.process.pid)
    return float(sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))) / MIB


def test_costly_formats_are_refused_beside_searches_and_memory_stays(daemon: RunningDaemon) -> None:
    assert ask(daemon.address, regex="[a-z ]{1,40}")[0] is grpc.StatusCode.OK
    assert search(daemon.address) > 0
    before = resident_mib(daemon)
    with ThreadPoolExecutor(len(COSTLY) + 1) as pool:
        asking = [pool.submit(ask, daemon.address, **fields) for fields in COSTLY]
        found = [search(daemon.address) for _ in range(8)]
        refusals = [each.result() for each in asking]
    for fields, (code, details) in zip(COSTLY, refusals, strict=True):
        (field,) = fields
        assert code is grpc.StatusCode.INVALID_ARGUMENT, (fields, details)
        assert details.startswith(f"{field}: "), details
        assert "at most" in details
    assert min(found) > 0
    assert resident_mib(daemon) - before < GROWTH_MIB


def test_a_format_that_no_bound_foresees_ends_its_check_only(daemon: RunningDaemon) -> None:
    """Kills the process that checks formats, as a limit of the kernel does, and asks again."""
    process = psutil.Process(daemon.process.pid)
    assert ask(daemon.address, regex="[0-9]{1,3} hours")[0] is grpc.StatusCode.OK
    (checker,) = [each for each in process.children() if CHECKER in " ".join(each.cmdline())]
    checker.kill()
    code, text = ask(daemon.address, regex="[0-9]{1,2} (days|weeks)")
    assert code is grpc.StatusCode.OK, text
    assert text.split()[1] in ("days", "weeks")


@pytest.mark.parametrize(
    "form", [{"regex": "(.*a){30}"}, {"regex": r"[\s\S]{0,100000}x"}, {"regex": r"(\p{L}|\p{N}|\p{S}){1,200}"}]
)
def test_hostile_formats_that_fit_are_answered_or_refused_by_their_field(
    daemon: RunningDaemon, form: dict[str, str]
) -> None:
    code, details = ask(daemon.address, **form)
    assert code is grpc.StatusCode.OK or (code is grpc.StatusCode.INVALID_ARGUMENT and details.startswith("regex: "))
    assert search(daemon.address) > 0


def test_the_checking_process_ends_with_a_killed_daemon(start: Callable[[], RunningDaemon]) -> None:
    own = start()
    ask(own.address, regex="a|b")
    children = psutil.Process(own.process.pid).children(recursive=True)
    assert any(CHECKER in " ".join(each.cmdline()) for each in children)
    own.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
