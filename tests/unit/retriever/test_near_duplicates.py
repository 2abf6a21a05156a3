import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.retriever.passages import Fingerprint, without_duplicates

_TEXT = (
    "Before the pump is opened the main switch is locked and a warning is hung beside it. The pressure is let out of "
    "the casing through the drain, whose valve stays open until the cover is back in place. Whoever opens the cover "
    "wears gloves and goggles, since the seal water may hold residues of what was pumped before the last flushing."
)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (_TEXT, True),
        (_TEXT.upper().replace(".", " !\n"), True),
        (_TEXT.replace("goggles", "spectacles"), True),
        (_TEXT + " It is then closed.", True),
        (_TEXT.replace("stays open", "does not stay open"), False),
        (_TEXT.replace("may hold", "mayn't hold"), False),
        (_TEXT[: len(_TEXT) // 2], False),
        (" ".join(reversed(_TEXT.split())), False),
        ("", False),
    ],
)
def test_texts_are_nearly_the_same_but_for_few_words(changed: str, same: bool) -> None:
    assert Fingerprint.of(_TEXT).is_near_duplicate(Fingerprint.of(changed)) is same
    assert Fingerprint.of(changed).is_near_duplicate(Fingerprint.of(_TEXT)) is same


def test_texts_that_differ_in_a_number_are_never_the_same() -> None:
    sheet = _TEXT + " The pressure is 7.5 bar."
    assert not Fingerprint.of(sheet).is_near_duplicate(Fingerprint.of(sheet.replace("7.5", "8.5")))
    assert not Fingerprint.of("Pump P-101").is_near_duplicate(Fingerprint.of("Pump P-102"))


def test_short_texts_are_the_same_only_word_by_word() -> None:
    assert Fingerprint.of("Wear gloves!").is_near_duplicate(Fingerprint.of("wear gloves"))
    assert not Fingerprint.of("Open the drain valve at once").is_near_duplicate(
        Fingerprint.of("Close the drain valve at once")
    )


@given(st.lists(st.tuples(st.sampled_from(["a b c", "a b d", "A, b c", "x"]), st.sampled_from("pqr")), max_size=12))
def test_every_item_stays_or_is_named_by_a_better_one_of_another_source(items: list[tuple[str, str]]) -> None:
    numbered = [(text, source, number) for number, (text, source) in enumerate(items)]

    kept = without_duplicates(numbered, lambda item: Fingerprint.of(item[0]), lambda item: item[1])

    assert sorted(
        [item for item, _ in kept] + [other for _, others in kept for other in others], key=lambda i: i[2]
    ) == (numbered)
    assert [item[2] for item, _ in kept] == sorted(item[2] for item, _ in kept)
    for item, others in kept:
        for other in others:
            assert other[2] > item[2]
            assert other[1] != item[1]
            assert Fingerprint.of(other[0]).is_near_duplicate(Fingerprint.of(item[0]))
