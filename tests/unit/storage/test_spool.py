"""The spool: documents that are received to disk, and the shares of those who upload."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import NotReady, StorageCorrupt, StorageError, StorageFull
from edge_rag.storage.spool.files import Spool
from edge_rag.storage.spool.shares import Claim, SpoolShares

_CAPACITY = 1 << 20
_OWNERS = ("ada", "bo", "cy")


def received(spool: Spool, *pieces: bytes, owner: str = "ada") -> tuple[Path, bytes]:
    incoming = spool.receive(owner, sum(map(len, pieces)))
    for piece in pieces:
        incoming.write(piece)
    content = incoming.finish()
    return content.path, content.read()


def test_a_document_is_received_in_pieces_into_a_private_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)

    path, content = received(spool, b"one ", b"two")

    assert content == b"one two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_discarded_document_leaves_no_file_and_frees_its_bytes(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)
    unwritten, partial, complete = (spool.receive("ada", 10_000) for _ in range(3))
    partial.write(b"x" * 5_000)
    complete.write(b"x" * 10_000)
    complete.finish()

    for incoming in (unwritten, partial, complete, complete):
        incoming.discard()

    assert list((tmp_path / "spool").iterdir()) == []
    assert spool.used_bytes == 0
    with pytest.raises(StorageError, match="discarded"):
        partial.write(b"late")


def test_a_committed_document_stays_until_it_is_discarded_by_name(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)
    incoming = spool.receive("ada", 3)
    incoming.write(b"abc")
    content = incoming.finish()
    name = spool.commit(content)
    incoming.discard()

    assert spool.open(name, 3, content.sha256).read() == b"abc"
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [name]

    spool.discard(name)

    assert (list((tmp_path / "spool").iterdir()), spool.used_bytes) == ([], 0)
    with pytest.raises(StorageCorrupt, match="missing"):
        spool.open(name, 3, content.sha256).read()


def test_a_document_that_was_discarded_while_it_was_received_is_not_committed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)
    incoming = spool.receive("ada", 3)
    incoming.write(b"abc")
    content = incoming.finish()
    incoming.discard()

    with pytest.raises(StorageError):
        spool.commit(content)
    assert (list((tmp_path / "spool").iterdir()), spool.used_bytes) == ([], 0)


def test_nothing_that_a_backup_reads_is_deleted_or_freed_meanwhile(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)
    name = spool.commit(spool.add("ada", b"abc"))

    with spool.pinned() as folder:
        spool.discard(name)
        assert (folder / name).read_bytes() == b"abc"
        assert spool.used_bytes > 0

    assert (list((tmp_path / "spool").iterdir()), spool.used_bytes) == ([], 0)


def test_the_next_start_removes_partial_files_and_counts_the_committed_ones(tmp_path: Path) -> None:
    killed = Spool(tmp_path / "spool", _CAPACITY)
    name = killed.commit(killed.add("ada", b"a" * 100_000))
    (tmp_path / "spool" / "ffff.part").write_bytes(b"half")

    spool = Spool(tmp_path / "spool", _CAPACITY)
    spool.keep_only({name: ("ada", 100_000)})

    assert [path.name for path in (tmp_path / "spool").iterdir()] == [name]
    assert spool.used_bytes == 100_000


def test_one_writer_cannot_fill_the_spool_and_waits_while_others_upload(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)
    size = _CAPACITY // 64
    flood = [spool.receive("ada", size) for _ in range(64)]
    granted = [incoming for incoming in flood if incoming.granted.done()]
    waiting = [incoming for incoming in flood if not incoming.granted.done()]

    assert len(granted) == 48
    assert spool.receive("bo", 8 * size).granted.done()
    with pytest.raises(StorageFull, match=r"ingest\.spool_mib"):
        spool.add("ada", bytes(size))

    for incoming in granted:
        incoming.discard()

    assert waiting[0].granted.done()


def test_a_document_without_room_is_refused_when_the_daemon_drains(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", _CAPACITY)
    arriving = spool.receive("ada", _CAPACITY)
    waiting = spool.receive("bo", 10)

    spool.drain()

    assert arriving.finish().read() == b""
    for late in (waiting, spool.receive("cy", _CAPACITY)):
        with pytest.raises(NotReady):
            late.granted.result(0)


Steps = st.lists(
    st.tuples(st.sampled_from(_OWNERS), st.integers(1, 2 * _CAPACITY), st.booleans(), st.integers(0, 50)), max_size=60
)


@given(Steps)
def test_shares_never_exceed_the_capacity_and_every_claim_is_granted_in_the_end(
    steps: list[tuple[str, int, bool, int]],
) -> None:
    shares = SpoolShares(_CAPACITY)
    open_claims: list[Claim] = []
    granted: set[Claim] = set()
    for owner, size, releases, which in steps:
        if releases and open_claims:
            claim = open_claims.pop(which % len(open_claims))
            granted.discard(claim)
            granted.update(shares.release(claim))
        else:
            claim = Claim(owner, size)
            open_claims.append(claim)
            granted.update(shares.request(claim))
        assert shares.used_bytes == sum(claim.size_bytes for claim in granted)
        assert shares.used_bytes <= _CAPACITY or len(granted) == 1
        assert granted or not open_claims
        for each in _OWNERS:
            held = [claim for claim in granted if claim.owner == each]
            assert shares.held_bytes(each) == sum(claim.size_bytes for claim in held)
            assert len(held) <= 1 or 4 * shares.held_bytes(each) <= 3 * max(
                _CAPACITY, shares.held_bytes(each) + max(claim.size_bytes for claim in held)
            )
    while open_claims:
        claim = next(claim for claim in open_claims if claim in granted)
        open_claims.remove(claim)
        granted.discard(claim)
        granted.update(shares.release(claim))
    assert shares.used_bytes == 0


@given(st.lists(st.integers(1, _CAPACITY // 4), min_size=1, max_size=30), st.integers(0, 3))
def test_the_first_document_of_an_owner_is_never_overtaken(sizes: list[int], ahead: int) -> None:
    shares = SpoolShares(_CAPACITY)
    full = Claim("ada", _CAPACITY)
    assert shares.request(full) == [full]
    first = Claim("bo", _CAPACITY // 2)
    before = [Claim(f"{number}", 1) for number in range(ahead)]
    for claim in (*before, first):
        assert shares.request(claim) == []
    for size in sizes:
        assert shares.request(Claim("ada", size)) == []

    order = shares.release(full)

    assert order[: ahead + 1] == [*before, first]
