"""A snapshot shows the running sequences and the holders of pages, and no text."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.query import Priority
from edge_rag.engine.command_queue import IDLE_TURN_S
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.sequence import SequenceId
from edge_rag.engine.snapshot import MAP_CELLS, SNAPSHOT_TIMEOUT_S
from edge_rag.runtime.decoder.model_input import PackedStep
from tests.unit.engine.support import LIMITS, GatedRunner, Recorder, prompts, request, tiny_decoder


@given(st.integers(1, 40), st.integers(1, 12), st.lists(st.integers(0, 60), max_size=6))
def test_a_map_counts_every_page_once_in_the_cell_of_its_number(pages: int, cells: int, lengths: list[int]) -> None:
    pool = BlockPool(pages, page_tokens=4)
    for number, length in enumerate(lengths):
        sequence, tokens = SequenceId(number + 1), list(range(length))
        shared = pool.match("manuals", tokens, [])
        if pool.pages_for(length) - len(shared) > pool.available_without([], shared):
            continue
        pool.share(sequence, shared)
        pool.extend(sequence, pool.allocate(pool.pages_for(length) - len(shared)))
        pool.register_full(sequence, "manuals", tokens, length, [])
        if number % 2:
            pool.release(sequence)
    drawn, snapshot = pool.map(cells), pool.snapshot()
    assert len(drawn.held) == len(drawn.shared) == len(drawn.cached) <= cells
    assert sum(drawn.held) == sum(count == 1 for count in snapshot.references)
    assert sum(drawn.shared) == sum(count > 1 for count in snapshot.references)
    assert sum(drawn.cached) == len(snapshot.cached)
    for cell, cached in enumerate(drawn.cached):
        assert cached == sum(page // drawn.cell_pages == cell for page in snapshot.cached)


def test_a_running_request_is_seen_with_its_numbers() -> None:
    running, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        if step.input_ids.size == 1:
            running.set()
            assert proceed.wait(60)

    engine = Engine(GatedRunner(tiny_decoder(), hold), EngineSettings(LIMITS, max_waiting=8))
    sink = Recorder()
    engine.submit(request(prompts(1)[0][:20], max_tokens=4, priority=Priority.BATCH, client="ward-3"), sink)
    engine.start()
    assert running.wait(60)
    late = threading.Timer(SNAPSHOT_TIMEOUT_S / 4, proceed.set)
    late.start()
    snapshot = engine.snapshot()
    sink.wait()
    engine.close()
    (slot,) = snapshot.sequences
    assert (slot.request_id, slot.client, slot.priority) == ("r", "ward-3", Priority.BATCH)
    assert (slot.prompt_tokens, slot.max_tokens) == (20, 4)
    assert slot.generated_tokens >= 1
    assert slot.computed_tokens >= 20
    assert sum(snapshot.page_map.held) == slot.pages >= 1
    assert slot.age_s > 0


def test_a_snapshot_of_an_idle_engine_needs_no_wait() -> None:
    engine = Engine(tiny_decoder(pages=MAP_CELLS + 1), EngineSettings(LIMITS, max_waiting=8))
    engine.start()
    snapshots = [engine.snapshot() for _ in range(20)]
    engine.close()
    assert IDLE_TURN_S > 0
    assert all(snapshot.sequences == () for snapshot in snapshots)
    assert snapshots[-1].page_map.cell_pages == 2


def test_during_a_long_step_the_snapshot_before_it_is_returned() -> None:
    stuck, proceed = threading.Event(), threading.Event()

    def hold(step: PackedStep) -> None:
        stuck.set()
        assert proceed.wait(60)

    engine = Engine(GatedRunner(tiny_decoder(), hold), EngineSettings(LIMITS, max_waiting=8))
    sink = Recorder()
    engine.submit(request(prompts(1)[0], max_tokens=2), sink)
    engine.start()
    assert stuck.wait(60)
    assert engine.snapshot().sequences == ()
    proceed.set()
    sink.wait()
    engine.close()
