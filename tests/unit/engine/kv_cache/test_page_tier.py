"""An engine with pages on disk: the same answers, computed from what was computed before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.kv_cache.disk.store import PageStore, StoredPage, file_bytes
from edge_rag.engine.kv_cache.disk.tier import PageTier, should_read_pages
from edge_rag.engine.kv_cache.prefix_cache import PageKey
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from tests.unit.engine.support import LIMITS, Recorder, generate, prompts, request, tiny_decoder

PAGES = 8
BUDGET = 64 << 20
(HOT,) = prompts(1, 150, 150, seed=3)
OTHERS = prompts(3, 240, 240, seed=4)  # so long that nothing of another one stays in memory beside them


class WatchedStore(PageStore):
    """The real store, which signals each write."""

    def watch(self) -> threading.Semaphore:
        self.wrote = threading.Semaphore(0)
        return self.wrote

    def write(self, trust_domain: str, key: PageKey, content: bytes, uses: int) -> bool:
        written = super().write(trust_domain, key, content, uses)
        if written and hasattr(self, "wrote"):
            self.wrote.release()
        return written


class StuckStore(PageStore):
    """The real store over a disk that does not answer until it is let."""

    def hold(self) -> threading.Event:
        self.answers = threading.Event()
        return self.answers

    def read(self, trust_domain: str, key: PageKey) -> StoredPage | None:
        assert self.answers.wait(60)
        return super().read(trust_domain, key)


def store_over(
    decoder: PagedDecoder, folder: Path, kind: type[PageStore] = PageStore, epoch: int = 0, identity: bytes = b"tiny"
) -> PageStore:
    return kind(folder, identity.ljust(32), decoder.page_bytes, BUDGET, {"manuals": epoch, "personnel": 0})


def stuck_store(decoder: PagedDecoder, folder: Path) -> tuple[PageStore, threading.Event]:
    store = store_over(decoder, folder, StuckStore)
    assert isinstance(store, StuckStore)
    return store, store.hold()


@contextmanager
def engine_over(
    decoder: PagedDecoder, store: PageStore, failures: list[str] | None = None, hold_s: float = 60.0
) -> Iterator[tuple[Engine, PageTier]]:
    generated = [] if failures is None else failures
    tier = PageTier(decoder, generated.append, should_read=lambda *_: True, min_hold_s=hold_s)
    tier.attach(store)
    engine = Engine(decoder, EngineSettings(LIMITS, max_waiting=64), tier=tier)
    engine.start()
    try:
        yield engine, tier
    finally:
        engine.close(grace_s=60)


def generate_one(
    engine: Engine, prompt: tuple[int, ...], epoch: int = 0, trust_domain: str = "manuals"
) -> tuple[list[int], int]:
    sink = Recorder()
    engine.submit(replace(request(prompt, 6, trust_domain=trust_domain), epoch=epoch), sink)
    outcome = sink.wait().outcome
    assert outcome is not None, sink.error
    return sink.tokens, outcome.usage.cached_prompt_tokens


def leave_hot(folder: Path) -> None:
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, folder)) as (engine, _):
        for _ in range(2):
            generate_one(engine, HOT)


def plain(prompt: tuple[int, ...]) -> list[int]:
    (sink,) = generate(tiny_decoder(), [request(prompt, 6)])
    return sink.tokens


def evict_hot(engine: Engine, wrote: threading.Semaphore) -> None:
    for _ in range(2):
        generate_one(engine, HOT)
    for other in OTHERS:
        generate_one(engine, other)
    for _ in range(4):
        assert wrote.acquire(timeout=60)


def test_what_was_evicted_comes_back_from_the_disk_and_the_answer_is_the_same(tmp_path: Path) -> None:
    decoder = tiny_decoder(pages=PAGES)
    store = store_over(decoder, tmp_path, WatchedStore)
    assert isinstance(store, WatchedStore)
    wrote = store.watch()
    with engine_over(decoder, store) as (engine, tier):
        evict_hot(engine, wrote)
        generated, found = generate_one(engine, HOT)
        assert found >= 4 * decoder.page_tokens
        assert tier.stats.read > 0
    assert generated == plain(HOT)


def test_a_page_used_once_is_not_written(tmp_path: Path) -> None:
    decoder = tiny_decoder(pages=PAGES)
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, tier):
        for prompt in (HOT, *OTHERS):
            generate_one(engine, prompt)
    assert tier.stats.written == 0


def test_what_is_dropped_because_memory_is_short_is_not_copied_first(tmp_path: Path) -> None:
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, tier):
        for _ in range(2):
            generate_one(engine, HOT)
        engine.shed_memory(drop_cache=True, hold_batch=False)
        engine.snapshot()  # has the engine go round once
        assert engine.stats().pages_cached == 0
        assert generate_one(engine, HOT) == (plain(HOT), 0)
        engine.shed_memory(drop_cache=True, hold_batch=False)
    assert tier.stats.written == 0


def test_hot_pages_survive_a_restart_and_the_answer_is_the_same(tmp_path: Path) -> None:
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, _):
        first = [generate_one(engine, HOT)[0] for _ in range(2)]
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, tier):
        generated, found = generate_one(engine, HOT)
        assert generate_one(engine, HOT, trust_domain="personnel")[1] == 0
    assert found >= 4 * decoder.page_tokens
    assert tier.stats.read >= 4
    assert [generated, generated] == first


def test_at_the_end_the_most_used_pages_are_written(tmp_path: Path) -> None:
    decoder = tiny_decoder()
    store = PageStore(
        tmp_path, b"tiny".ljust(32), decoder.page_bytes, 4 * file_bytes(decoder.page_bytes), {"manuals": 0}
    )
    with engine_over(decoder, store) as (engine, _):
        for prompt, times in ((OTHERS[0], 2), (HOT, 4), (OTHERS[1], 2)):
            for _ in range(times):
                generate_one(engine, prompt)
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, _):
        assert generate_one(engine, HOT)[1] == 4 * decoder.page_tokens
        assert generate_one(engine, OTHERS[0])[1] == 0


def test_removed_text_leaves_nothing_on_the_disk_and_nothing_comes_back(tmp_path: Path) -> None:
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, _):
        for _ in range(2):
            generate_one(engine, HOT)
        engine.forget("manuals", 1)
        assert generate_one(engine, HOT, epoch=1)[1] == 0
        assert generate_one(engine, HOT, epoch=0)[1] == 0  # retrieved before the text was removed, submitted after
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name.endswith("-0")]
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path, epoch=2)) as (engine, tier):
        assert generate_one(engine, HOT, epoch=2)[1] == 0
    assert tier.stats.read == 0


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    leave_hot(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    decoder = tiny_decoder()
    with engine_over(decoder, store_over(decoder, tmp_path)) as (engine, tier):
        generated, found = generate_one(engine, HOT)
        assert tier.stats.damaged >= 1
    assert found == 0
    assert generated == plain(HOT)


def test_a_failed_disk_is_reported_once_and_no_request_fails(tmp_path: Path) -> None:
    decoder, failures = tiny_decoder(pages=PAGES), list[str]()
    store = store_over(decoder, tmp_path / "kv")
    with engine_over(decoder, store, failures) as (engine, tier):
        (tmp_path / "kv").rename(tmp_path / "elsewhere")
        (tmp_path / "kv").write_text("no folder any more")
        for _ in range(2):
            generate_one(engine, HOT)
        for prompt in (*OTHERS, HOT):
            assert generate_one(engine, prompt)[0] == plain(prompt)
    assert tier.stats.failed
    assert len(failures) == 1
    assert "write to" in failures[0]


def test_a_disk_that_does_not_answer_holds_a_request_back_no_longer_than_computing_would(tmp_path: Path) -> None:
    leave_hot(tmp_path)
    decoder = tiny_decoder()
    store, answers = stuck_store(decoder, tmp_path)
    with engine_over(decoder, store, hold_s=0.05) as (engine, _):
        generated, found = generate_one(engine, HOT)
        answers.set()
    assert found == 0
    assert generated == plain(HOT)


def test_a_request_that_is_cancelled_while_its_pages_are_read_ends(tmp_path: Path) -> None:
    leave_hot(tmp_path)
    decoder = tiny_decoder()
    store, answers = stuck_store(decoder, tmp_path)
    with engine_over(decoder, store) as (engine, _):
        sink = Recorder()
        engine.cancel(engine.submit(request(HOT, 6), sink))
        sink.wait()
        answers.set()
        assert generate_one(engine, HOT)[0] == plain(HOT)
    assert sink.ends == 1


@pytest.mark.parametrize("early", [True, False])
def test_who_is_paused_while_its_pages_are_read_goes_on_once_it_may(tmp_path: Path, early: bool) -> None:
    leave_hot(tmp_path)
    decoder = tiny_decoder()
    store, answers = stuck_store(decoder, tmp_path)
    with engine_over(decoder, store) as (engine, _):
        sink = Recorder()
        name = engine.submit(request(HOT, 6), sink)
        engine.pause(name)
        if early:
            engine.resume(name)
        answers.set()
        assert generate_one(engine, OTHERS[0])[0] == plain(OTHERS[0])
        assert early or not sink.ended.is_set()
        engine.resume(name)
        assert sink.wait().tokens == plain(HOT)


@pytest.mark.parametrize(
    ("read_s", "compute_s", "pages", "ahead", "pays"),
    [
        (None, 0.001, 4, 0, True),
        (0.01, None, 4, 0, True),
        (0.01, 0.001, 4, 0, True),
        (0.04, 0.001, 4, 0, False),
        (0.01, 0.001, 4, 12, False),
        (0.01, 0.001, 4, 4, True),
    ],
)
def test_pages_are_read_where_that_is_faster_than_computing_them(
    read_s: float | None, compute_s: float | None, pages: int, ahead: int, pays: bool
) -> None:
    assert should_read_pages(read_s, compute_s, pages, ahead, page_tokens=32) is pays
