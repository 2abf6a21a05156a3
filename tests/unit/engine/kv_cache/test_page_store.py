"""Pages on disk: what is never used, what goes, and what is still there after a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.engine.kv_cache.disk.store import (
    PageFileInvalid,
    PageName,
    PageStore,
    decode_page,
    encode_page,
    file_bytes,
)
from edge_rag.engine.kv_cache.prefix_cache import PageKey
from edge_rag.engine.sequence import domain_key
from tests.support.examples import examples

PAGE_BYTES = 48
IDENTITY = b"model, layout and directory".ljust(32)
DOMAIN = domain_key("manuals", 3)
NAME = PageName(IDENTITY, DOMAIN, PageKey(b"k" * 16))
CONTENT = bytes(range(PAGE_BYTES))


def key(number: int) -> PageKey:
    return PageKey(number.to_bytes(16, "big"))


def opened(
    folder: Path, pages: int = 100, identity: bytes = IDENTITY, epochs: dict[str, int] | None = None
) -> PageStore:
    return PageStore(
        folder, identity, PAGE_BYTES, pages * file_bytes(PAGE_BYTES), {"manuals": 3} if epochs is None else epochs
    )


def content(store: PageStore, number: int, domain: str = DOMAIN) -> bytes | None:
    page = store.read(domain, key(number))
    return None if page is None else bytes(page.content)


def the_file(folder: Path) -> Path:
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    return path


def test_a_page_comes_back_as_it_was_written() -> None:
    page = decode_page(NAME, encode_page(NAME, CONTENT, 7), PAGE_BYTES)
    assert (bytes(page.content), page.uses) == (CONTENT, 7)


def test_a_file_with_any_bit_flipped_is_refused() -> None:
    whole = encode_page(NAME, CONTENT, 7)
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(PageFileInvalid):
            decode_page(NAME, bytes(damaged), PAGE_BYTES)


def test_a_file_of_any_other_length_is_refused() -> None:
    whole = encode_page(NAME, CONTENT, 7)
    for length in range(len(whole)):
        with pytest.raises(PageFileInvalid):
            decode_page(NAME, whole[:length], PAGE_BYTES)
    with pytest.raises(PageFileInvalid):
        decode_page(NAME, whole + b"\0", PAGE_BYTES)


@pytest.mark.parametrize(
    "other",
    [
        PageName(b"another model".ljust(32), DOMAIN, NAME.key),
        PageName(IDENTITY, domain_key("personnel", 3), NAME.key),
        PageName(IDENTITY, domain_key("manuals", 4), NAME.key),
        PageName(IDENTITY, DOMAIN, PageKey(b"j" * 16)),
    ],
    ids=["model", "trust domain", "epoch", "tokens"],
)
def test_a_page_of_something_else_is_refused(other: PageName) -> None:
    with pytest.raises(PageFileInvalid):
        decode_page(NAME, encode_page(other, CONTENT, 7), PAGE_BYTES)


@given(st.binary(max_size=2 * file_bytes(PAGE_BYTES)))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PageFileInvalid):
        decode_page(NAME, data, PAGE_BYTES)


def test_pages_are_there_after_a_restart(tmp_path: Path) -> None:
    assert opened(tmp_path).write(DOMAIN, key(1), CONTENT, 5)
    again = opened(tmp_path)
    assert again.has(DOMAIN, key(1))
    assert content(again, 1) == CONTENT


def test_a_damaged_file_is_removed_when_it_is_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write(DOMAIN, key(1), CONTENT, 5)
    path = the_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PageFileInvalid):
        store.read(DOMAIN, key(1))
    assert not path.exists()
    assert content(store, 1) is None


def test_a_file_put_in_the_place_of_another_is_not_used(tmp_path: Path) -> None:
    store = opened(tmp_path, epochs={"manuals": 3, "personnel": 3})
    store.write(DOMAIN, key(1), CONTENT, 5)
    source = the_file(tmp_path)
    store.write(domain_key("personnel", 3), key(1), bytes(PAGE_BYTES), 5)
    (target,) = (path for path in tmp_path.rglob("*") if path.is_file() and path != source)
    shutil.copyfile(source, target)
    with pytest.raises(PageFileInvalid):
        store.read(domain_key("personnel", 3), key(1))


def test_pages_of_another_model_are_removed(tmp_path: Path) -> None:
    opened(tmp_path).write(DOMAIN, key(1), CONTENT, 5)
    other = opened(tmp_path, identity=b"another model".ljust(32))
    assert content(other, 1) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_trust_domains_never_share(tmp_path: Path) -> None:
    store = opened(tmp_path, epochs={"manuals": 3, "personnel": 3})
    store.write(DOMAIN, key(1), CONTENT, 5)
    assert not store.has(domain_key("personnel", 3), key(1))
    assert content(store, 1, domain_key("personnel", 3)) is None


def test_what_was_computed_from_removed_text_goes_at_once_and_cannot_be_written_any_more(tmp_path: Path) -> None:
    store = opened(tmp_path, epochs={"manuals": 3, "personnel": 1})
    personnel = domain_key("personnel", 1)
    store.write(DOMAIN, key(1), CONTENT, 5)
    store.write(personnel, key(2), CONTENT, 5)
    store.forget("manuals", 4)
    assert content(store, 1) is None
    assert not store.write(DOMAIN, key(1), CONTENT, 5)
    assert store.write(domain_key("manuals", 4), key(1), CONTENT, 5)
    assert content(store, 2, personnel) == CONTENT
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_after_a_kill_between_removing_text_and_its_pages_they_are_not_found(tmp_path: Path) -> None:
    opened(tmp_path).write(DOMAIN, key(1), CONTENT, 5)
    again = opened(tmp_path, epochs={"manuals": 4})
    assert content(again, 1) is None
    assert content(again, 1, domain_key("manuals", 4)) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_pages_of_a_collection_that_is_gone_go_at_the_next_start(tmp_path: Path) -> None:
    opened(tmp_path).write(DOMAIN, key(1), CONTENT, 5)
    opened(tmp_path, epochs={})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_strangers_in_the_folder_are_removed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write(DOMAIN, key(1), CONTENT, 5)
    domain = the_file(tmp_path).parent
    (domain / "notes.txt").write_text("hello")
    (domain / "folder").mkdir()
    (domain.parent / "stranger").write_text("hello")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("mine")
    (domain / ("0" * 32)).symlink_to(outside)
    again = opened(tmp_path)
    assert len(again) == 1
    assert content(again, 1) == CONTENT
    assert outside.read_text() == "mine"


def test_what_is_one_requests_own_is_not_written(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert not store.write(f"{DOMAIN}\0{17}", key(1), CONTENT, 5)
    assert len(store) == 0


def test_the_longest_unused_page_goes_when_the_budget_is_used_up(tmp_path: Path) -> None:
    store = opened(tmp_path, pages=2)
    for number in (1, 2):
        store.write(DOMAIN, key(number), CONTENT, 5)
    content(store, 1)
    store.write(DOMAIN, key(3), CONTENT, 5)
    assert [content(store, number) is None for number in (1, 2, 3)] == [False, True, False]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("wrf"), st.integers(0, 9)), max_size=40), st.integers(0, 4))
def test_the_disk_never_holds_more_than_its_budget(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], pages: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store, epoch = opened(folder, pages), 3
    for step, number in steps:
        if step == "w":
            store.write(domain_key("manuals", epoch), key(number), bytes([number]) * PAGE_BYTES, 5)
        elif step == "f":
            epoch += 1
            store.forget("manuals", epoch)
        else:
            found = content(store, number, domain_key("manuals", epoch))
            assert found in (None, bytes([number]) * PAGE_BYTES)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) == len(store) <= pages
    again = opened(folder, pages // 2, epochs={"manuals": epoch})
    assert len(again) <= pages // 2
