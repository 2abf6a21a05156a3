"""Stages work at the same time on different requests, each on its own device, and each device's share is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from edge_rag.pipeline.stage import Stage
from edge_rag.telemetry.activity import Activity


def test_three_stages_on_three_devices_work_on_three_requests_at_once() -> None:
    """Each stage goes on only once all three are at work: stages that took turns would wait for ever."""
    together = threading.Barrier(3)
    activity = Activity()

    def work(stage: str) -> Callable[[Sequence[str]], Sequence[str | Exception]]:
        def batch(requests: Sequence[str]) -> Sequence[str | Exception]:
            together.wait(60)
            return [f"{stage} {request}" for request in requests]

        return batch

    devices = {"retriever": "npu", "reranker": "cpu", "generator": "gpu"}
    stages: dict[str, Stage[str, str]] = {
        name: Stage(name, work(name), capacity=4, max_batch=1, busy=partial(activity.working, name, device))
        for name, device in devices.items()
    }
    asked = zip(stages.values(), ("C", "B", "A"), strict=True)
    futures = [stage.submit(request, deadline=None) for stage, request in asked]
    assert [future.result(60).value for future in futures] == ["retriever C", "reranker B", "generator A"]
    for stage in stages.values():
        stage.close()
    shares = {device.name: device for device in activity.devices()}
    assert {name: device.stages for name, device in shares.items()} == {
        "npu": ("retriever",),
        "cpu": ("reranker",),
        "gpu": ("generator",),
    }
    assert all(0 < device.busy <= 1 for device in shares.values())
