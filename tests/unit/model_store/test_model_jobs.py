"""Jobs on the model store: what they report, what they leave, and that nothing outlives them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from queue import Queue

import pytest

from edge_rag.errors import JobNotFound, NotReady
from edge_rag.model_store.jobs import (
    ModelJob,
    ModelJobKind,
    ModelJobs,
    ModelJobState,
    ModelTask,
    task_of_adding,
    task_of_verifying,
)
from edge_rag.model_store.source import AddRequest, GgufSource
from edge_rag.model_store.store import ModelStore
from tests.synthetic.tiny_gguf import tiny_model

WAIT_S = 120.0


class Running:
    """A store, its jobs, and those that have ended."""

    def __init__(self, folder: Path) -> None:
        self.store = ModelStore(folder / "store", folder / "builtin")
        self.jobs = ModelJobs()
        self.ended: Queue[ModelJob] = Queue()

    def start(self, task: ModelTask) -> ModelJob:
        return self.jobs.start(task, self.ended.put)

    def adding(self, path: Path, title: str = "") -> ModelTask:
        request = AddRequest(GgufSource(path, title), "tiny", None, None)
        return task_of_adding(self.store.directory, self.store.builtin, request)

    def end(self) -> ModelJob:
        return self.ended.get(timeout=WAIT_S)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    one = Running(tmp_path)
    yield one
    one.jobs.close()


async def test_a_model_is_added_by_a_process_and_verified_by_the_next(running: Running, tmp_path: Path) -> None:
    sent = tmp_path / "file-0123"
    tiny_model("llama").write(tmp_path / "tiny.gguf").rename(sent)
    task = running.adding(sent, "Tiny.gguf")
    started = running.start(ModelTask(task.kind, task.model, task.source, {**task.arguments, "accept_loss": True}))
    assert (started.number, started.kind, started.state) == (1, ModelJobKind.ADD, ModelJobState.RUNNING)
    assert (started.model, started.source) == ("tiny", "Tiny.gguf")
    with pytest.raises(NotReady, match="tiny is being added"):
        running.start(task_of_verifying(running.store.directory, running.store.builtin, "tiny"))
    async with aclosing(running.jobs.follow(1, 0)) as states:
        seen = [state async for state in states]
    assert seen[-1] == running.end() == running.jobs.latest()
    assert (seen[-1].state, seen[-1].problem) == (ModelJobState.DONE, "")
    # A follower that is slower than a step sees the next one.
    assert seen[-1].step == "syncing it to the disk"
    assert len({state.step for state in seen} - {""}) > 1
    assert [state.change for state in seen] == sorted({state.change for state in seen})
    assert running.store.manifest("tiny").source.startswith("Tiny.gguf, SHA-256 ")

    running.start(task_of_verifying(running.store.directory, running.store.builtin, "tiny"))
    verified = running.end()
    assert (verified.number, verified.kind, verified.state) == (2, ModelJobKind.VERIFY, ModelJobState.DONE)
    assert verified.total_bytes == sum(each.bytes for each in running.store.manifest("tiny").files.values())

    weights = running.store.find("tiny") / "paged.onnx.data"
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(content)
    running.start(task_of_verifying(running.store.directory, running.store.builtin, "tiny"))
    damaged = running.end()
    assert damaged.state is ModelJobState.FAILED
    assert "paged.onnx.data was altered" in damaged.problem


def test_what_cannot_be_added_is_told_and_leaves_nothing(running: Running, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    running.start(running.adding(broken))
    failed = running.end()
    assert failed.state is ModelJobState.FAILED
    assert "broken.gguf" in failed.problem
    assert running.store.models() == []
    assert [path.name for path in running.store.directory.iterdir()] == [".lock"]


async def test_a_cancelled_job_ends_with_its_process_and_another_can_start(running: Running, tmp_path: Path) -> None:
    tiny = tiny_model("llama").write(tmp_path / "tiny.gguf")
    running.start(running.adding(tiny))
    process = running.jobs._process
    assert process is not None
    async with aclosing(running.jobs.follow(1, 0)) as states:
        async for state in states:
            if state.step and state.step != "copying":
                break
    assert any(path.name.startswith(".adding-") for path in running.store.directory.iterdir())
    cancelled = await asyncio.to_thread(running.jobs.cancel, 1)
    assert cancelled.state is ModelJobState.CANCELLED
    assert cancelled == running.end()
    assert process.poll() is not None
    assert [path.name for path in running.store.directory.iterdir()] == [".lock"]
    assert running.jobs.cancel(1) == cancelled, "it has ended"
    with pytest.raises(JobNotFound):
        running.jobs.cancel(2)
    with pytest.raises(JobNotFound):
        await anext(running.jobs.follow(2, 0))
    running.start(running.adding(tmp_path / "missing.gguf"))
    assert running.end().number == 2


def test_the_end_of_the_daemon_ends_the_job_and_refuses_others(running: Running, tmp_path: Path) -> None:
    tiny = tiny_model("llama").write(tmp_path / "tiny.gguf")
    running.start(running.adding(tiny))
    running.jobs.close()
    assert running.end().state is ModelJobState.CANCELLED
    assert not [thread for thread in threading.enumerate() if thread.name == "model-job"]
    with pytest.raises(NotReady, match="shutting down"):
        running.start(running.adding(tiny))
