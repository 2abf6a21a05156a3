"""A generator that is being replaced forgets removed text like the one in use."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.kv_cache.disk.store import PageStore
from edge_rag.engine.kv_cache.disk.tier import PageTier
from edge_rag.generator.model_swap import InstalledGenerator, ModelSwapper
from tests.unit.engine.support import LIMITS, Recorder, prompts, request, tiny_decoder


def installed(engine: Engine, name: str) -> InstalledGenerator:
    placement = Placement(ModelStage.GENERATOR, Provider.CPU, Provider.CPU, "", Precision.MODEL)
    return InstalledGenerator(cast(Any, SimpleNamespace(engine=engine)), ModelInUse(name, "", placement), 16, 4096)


def test_text_removed_during_a_swap_leaves_the_cache_of_the_replaced_generator(tmp_path: Path) -> None:
    """The removal comes while an answer of the replaced generator is under way, which writes its pages when it ends."""
    decoder = tiny_decoder()
    tier = PageTier(decoder, lambda problem: None, should_read=lambda *_: True, min_hold_s=60.0)
    store = PageStore(tmp_path, b"tiny".ljust(32), decoder.page_bytes, 64 << 20, {"manuals": 0})
    tier.attach(store)
    old = Engine(decoder, EngineSettings(LIMITS, max_waiting=8), tier=tier)
    swapper = ModelSwapper(installed(old, "old"))
    begun, go = threading.Event(), threading.Event()

    def hold(tokens: tuple[int, ...]) -> bool:
        begun.set()
        assert go.wait(60)
        return False

    (prompt,) = prompts(1, 96, 96)
    for _ in range(2):  # pages used twice are worth writing
        sink = Recorder()
        old.submit(request(prompt, 1, trust_domain="manuals"), sink)
        assert sink.wait().outcome is not None
    under_way = Recorder(hold)
    old.submit(request(prompt, 20, trust_domain="manuals"), under_way)
    assert begun.wait(60)
    successor = installed(Engine(tiny_decoder(), EngineSettings(LIMITS, max_waiting=8)), "new")
    swapping = threading.Thread(target=swapper.swap, args=(lambda: successor, 60.0))
    swapping.start()
    while swapper.current is not successor:
        time.sleep(0)

    swapper.forget("manuals", 1)
    go.set()
    assert under_way.wait().outcome is not None
    swapping.join(60)

    assert len(store) == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    swapper.close()
