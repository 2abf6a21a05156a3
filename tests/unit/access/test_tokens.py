import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.access.tokens import TokenFile, new_token, verify
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError, TokenNotFound

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LENGTH = len("erag_") + 16 + len("_") + 43
WARD = Identity("ward-3", frozenset({Role.READER}), frozenset({"manuals"}), Priority.NORMAL, Quota(60, 20_000, 2))


@given(st.integers(0, LENGTH - 1), st.integers(0, 15))
def test_a_text_that_differs_in_one_character_is_not_the_token(place: int, choice: int) -> None:
    token, text = new_token(WARD, NOW)
    others = [character for character in "abcdefXYZ0189_-é \n" if character != text[place]]
    assert len(text) == LENGTH
    assert verify(token, text, NOW)
    assert not verify(token, text[:place] + others[choice] + text[place + 1 :], NOW)
    assert not verify(None, text, NOW)


@given(st.text())
def test_any_text_can_be_presented(text: str) -> None:
    assert not verify(new_token(WARD, NOW)[0], text, NOW)


def test_a_token_ends_when_it_expires() -> None:
    token, text = new_token(WARD, NOW, NOW + timedelta(days=1))
    assert verify(token, text, NOW + timedelta(hours=23))
    assert not verify(token, text, NOW + timedelta(days=1))


def test_refusing_a_text_takes_the_same_work_for_any_text_and_number_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One digest and one constant-time comparison, independent of the presented text."""
    file = TokenFile(tmp_path / "tokens.json", lambda: NOW)
    made = [new_token(replace(WARD, name=f"ward-{number}"), NOW) for number in range(5)]
    for token, _ in made:
        file.add(token)
    work: list[object] = []
    sha256, compare = hashlib.sha256, hmac.compare_digest

    def digesting(content: bytes) -> object:
        work.append("digest")
        return sha256(content)

    def comparing(one: bytes, other: bytes) -> bool:
        work.append(("compare", len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr("edge_rag.access.tokens.hashlib.sha256", digesting)
    monkeypatch.setattr("edge_rag.access.tokens.hmac.compare_digest", comparing)
    assert len(file.tokens()) == 5  # read once, and again only when it changes
    right = [text for _, text in made]
    wrong = ["", "nonsense", "erag_" + "0" * 16 + "_" + "A" * 43, right[0][5:], right[1] + "A"]
    for text in right:
        wrong += [text[:22] + "A" * 43, text[:-1] + ("A" if text[-1] != "A" else "B"), text[:-1]]
    wrong += [first[:22] + second[22:] for first in right for second in right if first != second]
    for text in (*wrong, *right):
        work.clear()
        assert (file.identify(text) is not None) == (text in right)
        assert work == ["digest", ("compare", 32, 32)], text


def test_the_file_keeps_everything_except_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "access" / "tokens.json"
    token, text = new_token(WARD, NOW)
    TokenFile(path).add(token)
    assert TokenFile(path).tokens() == (token,)
    assert TokenFile(path, lambda: NOW).identify(text) == WARD
    assert TokenFile(path, lambda: NOW).named("ward-3") == WARD
    secret = text.split("_", 2)[2]
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_flipped_byte_changes_no_rights(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    TokenFile(path).add(new_token(WARD, NOW)[0])
    TokenFile(path).add(new_token(replace(WARD, name="ward-4"), NOW, NOW + timedelta(days=1))[0])
    whole, given_out = path.read_bytes(), TokenFile(path).tokens()
    refused = 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        try:
            assert TokenFile(path).tokens() == given_out
        except AccessError:
            refused += 1
    assert refused > len(whole) // 2


def test_a_file_of_format_1_without_a_digest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token, text = new_token(WARD, NOW)
    TokenFile(path).add(token)
    document = json.loads(path.read_bytes())
    del document["sha256"]
    path.write_text(json.dumps(document | {"format": 1}))
    assert TokenFile(path, lambda: NOW).identify(text) == WARD


def test_another_process_sees_a_new_token_and_its_revocation_at_once(tmp_path: Path) -> None:
    daemon, command = TokenFile(tmp_path / "tokens.json"), TokenFile(tmp_path / "tokens.json")
    token, text = new_token(WARD, NOW)
    assert daemon.identify(text) is None
    command.add(token)
    assert daemon.identify(text) == WARD
    assert command.revoke("ward-3") == token
    assert daemon.identify(text) is None
    with pytest.raises(TokenNotFound, match="no tokens"):
        command.revoke("ward-3")


def test_a_name_has_one_token(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    tokens.add(new_token(WARD, NOW)[0])
    with pytest.raises(AccessError, match="already"):
        tokens.add(new_token(WARD, NOW)[0])


def test_concurrently_added_tokens_are_all_kept(tmp_path: Path) -> None:
    def add(number: int) -> str:
        token, text = new_token(Identity(f"client-{number}", frozenset({Role.READER})), NOW)
        TokenFile(tmp_path / "tokens.json").add(token)
        return text

    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(add, range(24)))
    tokens = TokenFile(tmp_path / "tokens.json")
    assert [tokens.identify(text) is not None for text in texts] == [True] * 24


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 2}', '{"format": 1, "tokens": [{}]}', '{"format": 1, "more": 0}', "\x00" * 40],
)
def test_a_damaged_file_admits_no_caller(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    token, text = new_token(WARD, NOW)
    with pytest.raises(AccessError, match="damaged"):
        TokenFile(path).identify(text)
    with pytest.raises(AccessError, match="damaged"):
        TokenFile(path).add(token)
    assert path.read_text() == content


def test_an_unknown_role_admits_no_caller(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token, text = new_token(WARD, NOW)
    TokenFile(path).add(token)
    stored = json.loads(path.read_text())
    stored["tokens"][0]["priority_max"] = "urgent"
    path.write_text(json.dumps(stored))
    with pytest.raises(AccessError, match="damaged"):
        TokenFile(path).identify(text)


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    record: dict[str, object] = {
        "key": "0123456789abcdef",
        "sha256": hashlib.sha256(b"A" * 43).hexdigest(),
        "name": "ward-3",
    }
    record |= {"name": "ward-3", "roles": ["reader"], "collections": ["manuals"], "priority_max": "normal"}
    record |= {"requests_per_minute": 60, "tokens_per_minute": 20000, "concurrent_requests": 2}
    record |= {"created": "2026-11-21T00:00:00Z", "expires": None}
    digest = "32ee05c55b7f5b292b755fdf5513e4ddbddaf3ae1924e3580eece386303626b7"
    path.write_text(json.dumps({"format": 2, "sha256": digest, "tokens": [record]}))
    assert TokenFile(path, lambda: NOW).identify("erag_0123456789abcdef_" + "A" * 43) == WARD
