"""Memory of pages is taken as it is written and given back where it is worthless, and what is kept stays."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from edge_rag.runtime.decoder.paged_decoder import PageMemory
from tests.unit.engine.support import FIXTURES, tiny_decoder

SIZE = 64 << 20


def resident_bytes() -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        pytest.skip("this kernel does not say what is resident")
    return int(found[1]) << 10


def test_released_memory_is_not_resident_and_the_rest_stays() -> None:
    memory = PageMemory(SIZE)
    assert memory.array.ctypes.data % mmap.PAGESIZE == 0
    memory.array[:] = 7
    before = resident_bytes()
    memory.release(100, SIZE // 2)
    assert before - resident_bytes() > SIZE // 2 - (8 << 20)
    assert (memory.array[:100] == 7).all()
    assert (memory.array[SIZE // 2 + mmap.PAGESIZE :] == 7).all()
    assert (memory.array[mmap.PAGESIZE : SIZE // 2] == 0).all()


def test_a_range_smaller_than_a_page_stays() -> None:
    memory = PageMemory(3 * mmap.PAGESIZE)
    memory.array[:] = 1
    memory.release(1, mmap.PAGESIZE)
    assert (memory.array == 1).all()


def test_more_than_there_is_address_space_for_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        PageMemory(1 << 62)


def test_a_decoder_releases_only_the_given_pages() -> None:
    decoder = tiny_decoder(pages=64)
    for layer in decoder._layers:
        layer[:] = 5
    decoder.release_pages([1, 2, 3, 40, 41, 42, 43, 63])
    size = decoder.geometry.layer_page_bytes
    for layer in decoder._layers:
        flat = np.asarray(layer).reshape(-1)
        for first, last in ((1, 3), (40, 43)):
            inner = flat[-(-first * size // 4096) * 4096 : (last + 1) * size // 4096 * 4096]
            assert not inner.any()
        kept = [page for page in range(64) if page not in (1, 2, 3, 40, 41, 42, 43, 63)]
        assert (layer[kept] == 5).all()
    assert FIXTURES.is_dir()
