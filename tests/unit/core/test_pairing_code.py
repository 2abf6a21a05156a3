"""Codes as they are shown, typed and compared."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.pairing_code import SYMBOLS, PairingCode, is_key, is_secret

CERTIFICATE = b"a certificate"
CODE = PairingCode.make(hashlib.sha256(CERTIFICATE).digest())
TEXT = CODE.text()
PLACES = [place for place, symbol in enumerate(TEXT) if symbol != "-"]


@given(st.binary(min_size=32, max_size=32))
def test_what_is_shown_is_what_is_read(sha256: bytes) -> None:
    code = PairingCode.make(sha256)
    assert PairingCode.parse(code.text()) == code
    assert is_key(code.key)
    assert is_secret(code.secret)


def test_a_known_code_stays_readable() -> None:
    code = PairingCode.parse("5NRHCG-NQ4TR4-80B2FJ-MZMJV4-H4MVWB-CV34H7-1BV5MG")
    assert (code.server, code.key, code.secret) == ("5NRHCGNQ4TR480B2FJMZ", "MJV4", "H4MVWBCV34H7")
    assert code.is_for(b"x")


def test_it_may_be_typed_in_either_case_with_look_alikes_and_without_hyphens() -> None:
    typed = TEXT.lower().replace("-", " ").replace("0", "o").replace("1", "l")
    assert PairingCode.parse(f"  {typed}\n") == CODE


@given(st.sets(st.sampled_from(PLACES), min_size=1, max_size=4), st.data())
def test_up_to_four_mistyped_symbols_are_always_noticed(places: set[int], data: st.DataObject) -> None:
    mistyped = list(TEXT)
    for place in places:
        mistyped[place] = data.draw(st.sampled_from(SYMBOLS.replace(TEXT[place], "")))
    with pytest.raises(ValueError, match="mistyped"):
        PairingCode.parse("".join(mistyped))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"code has|in any code|mistyped"):
        PairingCode.parse(text)


@given(st.integers(0, 99))
def test_a_certificate_whose_hash_differs_in_one_of_the_first_hundred_bits_is_another(bit: int) -> None:
    sha256 = bytearray(hashlib.sha256(CERTIFICATE).digest())
    assert CODE.is_for(CERTIFICATE)
    sha256[bit // 8] ^= 128 >> bit % 8
    assert not PairingCode.make(bytes(sha256)).is_for(CERTIFICATE)


def test_the_secret_is_not_in_what_is_printed_of_a_code() -> None:
    assert CODE.secret not in repr(CODE)
