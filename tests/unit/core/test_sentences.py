from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.text import sentence_spans


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("The pump runs. The valve is shut.", ["The pump runs.", "The valve is shut."]),
        ("Is it hot? Yes! Stop it.", ["Is it hot?", "Yes!", "Stop it."]),
        ("Dr. Hale signed. See Fig. 3 first.", ["Dr. Hale signed.", "See Fig. 3 first."]),
        ("Use e.g. Grease No. 2 here. Wipe it.", ["Use e.g. Grease No. 2 here.", "Wipe it."]),
        ("In Brown v. Board it was decided. Done.", ["In Brown v. Board it was decided.", "Done."]),
        (
            "Lefevre (c. 1455) and Ba et al. (2019) agree, pp. 3-4. So do we.",
            ["Lefevre (c. 1455) and Ba et al. (2019) agree, pp. 3-4.", "So do we."],
        ),
        ("J. R. Smith came. He left.", ["J. R. Smith came.", "He left."]),
        ("Set 2.5 bar. Then wait.", ["Set 2.5 bar.", "Then wait."]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Ölstand prüfen. Über 80 °C abschalten.", ["Ölstand prüfen.", "Über 80 °C abschalten."]),
        ("Row one\nRow two", ["Row one", "Row two"]),
        ("no end mark", ["no end mark"]),
        ("  \n \n", []),
    ],
)
def test_boundaries_are_where_a_reader_sees_them(text: str, sentences: list[str]) -> None:
    assert cut(text) == sentences


@given(st.text(alphabet=st.sampled_from("aA. \n!?\"'é1)(")) | st.text())
def test_sentences_hold_every_visible_character_once_and_in_order(text: str) -> None:
    spans = sentence_spans(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(text[start:end].strip() == text[start:end] for start, end in spans)
    visible = [character for character in text if not character.isspace()]
    kept = [character for start, end in spans for character in text[start:end] if not character.isspace()]
    assert kept == visible


def test_a_line_of_nothing_but_abbreviations_is_one_sentence_however_long() -> None:
    text = "Dr. X " * 16_000
    assert sentence_spans(text) == ((0, len(text) - 1),)
