"""Numbers in one form, whatever language they are written in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.analysis.numbers import decimal_mark, normal_numbers


def readings(text: str) -> list[tuple[str, ...]]:
    return [number.readings for number in normal_numbers(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234.5 1.234,5 1 234,5 1\u202f234,5 1'234.5 １，２３４．５ ١٬٢٣٤٫٥", [("1234.5",)] * 7),
        ("1.234.567 1,234,567 12,34,567 1 234 567", [("1234567",)] * 4),
        ("1.234 and 1,234", [("1234", "1.234")] * 2),
        ("0.125 and 0,125", [("0.125",)] * 2),
        ("2,50 2.5 ٢٫٥", [("2.5",)] * 3),
        ("007 and 7.0", [("7",), ("7",)]),
        ("２０２４年５月３日 and 12-34", [("2024-05-03",), ("12",), ("34",)]),
        ("On 3.5.2024, 2024-05-03", [("2024-05-03",), ("2024-05-03",)]),
        ("v1 at 192.168.0.1", [("192.168.0.1",)]),
        ("In 2019 500 people met.", [("2019",), ("500",)]),
        ("It was 7. Then 8, or 9.", [("7",), ("8",), ("9",)]),
        ("१२३ ๔๕๖", [("123",), ("456",)]),
    ],
)
def test_the_numbers_of_a_text(text: str, expected: list[tuple[str, ...]]) -> None:
    assert readings(text) == expected


_GROUPS = {"en": (",", "."), "de": (".", ","), "fr": ("\u202f", ","), "ch": ("’", "."), "ar": ("٬", "٫")}


@given(st.integers(1_000, 10**12), st.integers(0, 99), st.sampled_from(sorted(_GROUPS)))
def test_every_language_writes_the_same_number(whole: int, hundredths: int, language: str) -> None:
    group, point = _GROUPS[language]
    text = f"{whole:,}".replace(",", group) + f"{point}{hundredths:02}"

    assert readings(f"({text} m)") == [(f"{whole}.{hundredths:02}".rstrip("0").rstrip("."),)]


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("It weighs 12.5 kg and 1,234 parts.", "."),
        ("Es wiegt 12,5 kg, 1.234 Teile.", ","),
        ("1,234.5 and 1,234", "."),
        ("1.234.567", ","),
        ("1,234,567", "."),
        ("0.125", "."),
        ("１，５", ","),
        ("1,5 or 1.5", ""),
        ("1.234 and 1,234 and 12", ""),
        ("On 3.5.2024 and 2024-05-03, at 192.168.0.1", ""),
        ("It was 7. Then 8, or 9.", ""),
        ("1’234’567 and ٢٫٥", ""),
    ],
)
def test_numbers_with_one_reading_tell_how_fractions_are_marked(text: str, mark: str) -> None:
    assert decimal_mark(text) == mark


@given(st.text(st.sampled_from("0123456789.,'’٫ \u202f年月日ab")), st.sampled_from(["", ".", ","]))
def test_a_known_mark_leaves_each_number_one_of_its_readings(text: str, mark: str) -> None:
    for unknown, known in zip(normal_numbers(text), normal_numbers(text, mark), strict=True):
        assert set(known.readings) <= set(unknown.readings)
        assert len(known.readings) == 1 or not mark


@given(st.integers(1, 999), st.integers(0, 999), st.sampled_from([("12.5", "."), ("12,5", ",")]), st.sampled_from(".,"))
def test_the_mark_of_a_text_is_that_of_its_other_numbers(
    whole: int, last: int, written: tuple[str, str], separator: str
) -> None:
    other, mark = written
    text = f"{other} m; {whole}{separator}{last:03} m"
    *_, number = normal_numbers(text, decimal_mark(text))
    expected = f"{whole}.{last:03}".rstrip("0").rstrip(".") if separator == mark else f"{whole}{last:03}"
    assert number.readings == (expected,)


@given(st.text())
def test_places_are_those_of_digits(text: str) -> None:
    end = 0
    for number in normal_numbers(text):
        assert end <= number.start < number.end <= len(text)
        assert text[number.start].isdecimal()
        assert number.readings
        assert all(reading.isascii() and set(reading) <= set("0123456789.-") for reading in number.readings)
        end = number.end
