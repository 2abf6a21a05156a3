import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.generator.citations.markers import MarkerRemover


def read(pieces: Sequence[str]) -> str:
    remover = MarkerRemover()
    return "".join(remover.feed(piece) for piece in pieces) + remover.flush()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (" Grease it weekly [2].", "Grease it weekly."),
        ("One. [1] Two.[3]", "One. Two."),
        ("One [1][2] [3]", "One"),
        ("One [1, 2] and two [2–4; 7].", "One and two."),
        ("A passage that nobody has [99] looks like support, too", "A passage that nobody has looks like support, too"),
        ("First line [1]\nsecond line [2]\n", "First line\nsecond line\n"),
        ("[1] Grease it", "Grease it"),
        ("Grease it [1[2]] weekly [1[2[3]]].", "Grease it weekly."),
    ],
)
def test_what_looks_like_a_citation_is_removed_with_the_blanks_before_it(written: str, shown: str) -> None:
    assert read([written]) == shown
    assert read(list(written)) == shown


def test_other_brackets_are_text() -> None:
    for text in ("a[i] = [12345] [x] [1", "args[0]", "[ ] [a1] [1 [2", "the year [2024]"):
        assert read([text]) == text


def test_text_that_cannot_become_a_marker_is_not_held_back() -> None:
    remover = MarkerRemover()
    assert remover.feed("Grease") == "Grease"
    assert remover.feed(" it [") == " it"
    assert remover.feed("ok") == " [ok"


PIECES = st.lists(
    st.sampled_from(["a", " ", "[", "]", "1", "2", "0", ",", "[1]", " [3]", "\n", "."]), max_size=25
)  # fmt: skip


@given(PIECES, st.data())
def test_the_result_does_not_depend_on_chunking(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read(pieces) == read([whole])


@given(PIECES)
def test_no_marker_is_left_and_nothing_else_is_removed(parts: list[str]) -> None:
    whole = "".join(parts)
    shown = read(parts)
    assert [found for found in re.findall(r"\[(\d{1,3})\]", shown) if int(found)] == []
    letters = Counter(whole) - Counter(shown)
    assert letters["["] == letters["]"]
    assert letters["a"] == letters["."] == 0
