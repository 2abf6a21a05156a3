from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_rag.access.pairing_file import MAX_TRIES, PairingFile, pairing
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.pairing_code import PairingCode
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError
from tests.support.examples import examples

NOW = datetime(2026, 11, 21, tzinfo=UTC)
WARD = Identity("ward-3", frozenset({Role.READER}), frozenset({"manuals"}), Priority.NORMAL, Quota(60, 20_000, 2))
LIFE = timedelta(minutes=10)
WRONG = "0" * 12


def made(file: PairingFile, identity: Identity = WARD, days: int | None = 7) -> PairingCode:
    code = PairingCode.make(bytes(32))
    file.add(pairing(code, identity, days, NOW, NOW + LIFE))
    return code


@pytest.fixture
def file(tmp_path: Path) -> PairingFile:
    return PairingFile(tmp_path / "access" / "pairings.json", lambda: NOW)


def test_a_code_can_be_redeemed_once(file: PairingFile) -> None:
    code = made(file)
    redeemed = file.redeem(code.key, code.secret)
    assert redeemed is not None
    assert (redeemed.identity, redeemed.token_days) == (WARD, 7)
    assert file.redeem(code.key, code.secret) is None
    assert file.open_pairings() == ()


def test_the_file_contains_no_secret_and_is_readable_by_its_owner_only(file: PairingFile, tmp_path: Path) -> None:
    code = made(file)
    path = tmp_path / "access" / "pairings.json"
    assert code.secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_code_is_void_after_too_many_wrong_secrets_across_restarts(file: PairingFile, tmp_path: Path) -> None:
    code = made(file)
    for _ in range(MAX_TRIES):
        again = PairingFile(tmp_path / "access" / "pairings.json", lambda: NOW)
        assert again.redeem(code.key, WRONG) is None
    assert file.redeem(code.key, code.secret) is None


def test_a_code_stays_valid_below_the_limit_of_wrong_secrets(file: PairingFile) -> None:
    code = made(file)
    for _ in range(MAX_TRIES - 1):
        assert file.redeem(code.key, WRONG) is None
    assert file.redeem(code.key, code.secret) is not None


def test_guesses_at_one_code_do_not_affect_another(file: PairingFile) -> None:
    one, other = made(file), made(file, replace(WARD, name="ward-4"))
    for _ in range(2 * MAX_TRIES):
        file.redeem(one.key, WRONG)
        file.redeem("0000", WRONG)
    assert file.redeem(one.key, one.secret) is None
    assert file.redeem(other.key, other.secret) is not None


@pytest.mark.parametrize("when", [LIFE, timedelta(days=-1)], ids=["over", "the clock was put back"])
def test_a_code_is_valid_only_within_its_time(file: PairingFile, tmp_path: Path, when: timedelta) -> None:
    code = made(file)
    later = PairingFile(tmp_path / "access" / "pairings.json", lambda: NOW + when)
    assert later.open_pairings() == ()
    assert later.redeem(code.key, code.secret) is None
    just = PairingFile(tmp_path / "access" / "pairings.json", lambda: NOW + LIFE - timedelta(seconds=1))
    assert just.redeem(code.key, code.secret) is not None


def test_a_second_code_for_a_name_replaces_the_first(file: PairingFile) -> None:
    first, second = made(file), made(file)
    assert file.redeem(first.key, first.secret) is None
    assert file.redeem(second.key, second.secret) is not None


def test_concurrent_redemptions_succeed_once(file: PairingFile, tmp_path: Path) -> None:
    code = made(file)
    path = tmp_path / "access" / "pairings.json"
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda _: PairingFile(path, lambda: NOW).redeem(code.key, code.secret), range(16)))
    assert sum(one is not None for one in got) == 1


def test_a_flipped_byte_in_the_file_admits_no_other_code(file: PairingFile, tmp_path: Path) -> None:
    made(file)
    path = tmp_path / "access" / "pairings.json"
    whole, before = path.read_bytes(), file.open_pairings()
    refused = 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        try:
            assert file.open_pairings() == before
        except AccessError:
            refused += 1
    assert refused > len(whole) // 2


class Codes(RuleBasedStateMachine):
    """However codes are made, tried, used up and left to end: one lets in at most once, and only while it is open."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "pairings.json"
        self._now = NOW
        self._codes: list[tuple[PairingCode, str, datetime, int]] = []  # code, name, end, wrong tries

    def teardown(self) -> None:
        self._folder.cleanup()

    def _file(self) -> PairingFile:
        return PairingFile(self._path, lambda: self._now)

    @rule(name=st.sampled_from(["a", "b", "c"]), minutes=st.integers(1, 5))
    def make(self, name: str, minutes: int) -> None:
        code, end = PairingCode.make(bytes(32)), self._now + timedelta(minutes=minutes)
        self._file().add(pairing(code, Identity(name, frozenset()), None, self._now, end))
        self._codes = [known for known in self._codes if known[1] != name and known[0].key != code.key]
        self._codes.append((code, name, end, 0))

    @rule(which=st.integers(0, 9), right=st.booleans())
    def show(self, which: int, right: bool) -> None:
        if not self._codes:
            return
        code, name, end, tries = self._codes.pop(which % len(self._codes))
        got = self._file().redeem(code.key, code.secret if right else WRONG)
        is_open = self._now < end
        assert (got is not None) == (right and is_open)
        if got is not None:
            assert got.identity.name == name
        elif not is_open or (not right and tries + 1 < MAX_TRIES):
            self._codes.append((code, name, end, tries + is_open))

    @rule(minutes=st.integers(1, 3))
    def wait(self, minutes: int) -> None:
        self._now += timedelta(minutes=minutes)

    @invariant()
    def as_many_are_open_as_should_be(self) -> None:
        expected = {code.key for code, _, end, _ in self._codes if self._now < end}
        assert {known.key for known in self._file().open_pairings()} == expected


TestCodes = Codes.TestCase
TestCodes.settings = settings(max_examples=examples(25), stateful_step_count=15, deadline=None)


def test_a_wrong_key_costs_no_change_and_no_reading_of_the_file(
    file: PairingFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = made(file)
    assert file.is_open(code.key)
    path = tmp_path / "access" / "pairings.json"
    before = path.stat()
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("the file was read"))
    wrong = "0000" if code.key != "0000" else "1111"
    for _ in range(1000):
        assert file.redeem(wrong, WRONG) is None
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_code_that_another_process_makes_or_uses_up_is_seen_at_once(file: PairingFile, tmp_path: Path) -> None:
    daemon = PairingFile(tmp_path / "access" / "pairings.json", lambda: NOW)
    assert not daemon.is_open("0000")
    code = made(file)
    assert daemon.is_open(code.key)
    assert file.redeem(code.key, code.secret) is not None
    assert not daemon.is_open(code.key)
