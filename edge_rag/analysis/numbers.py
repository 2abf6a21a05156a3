"""Numbers in one form, however a language writes them; pure.

``1,234.5``, ``1.234,5``, ``1 234,5``, ``1'234.5``, ``１，２３４．５`` and ``١٬٢٣٤٫٥`` are the same number. A point or
comma before exactly three digits is a decimal separator or groups thousands, by language (Unicode CLDR has both),
so such a number has two readings, unless other numbers of its text decide (``decimal_mark``). Digits of every script
count (Unicode property ``Nd``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_NARROW: Final = "\u00a0\u2009\u202f"
"""Spaces that do not end a line: these group digits wherever they stand."""

_GROUPING: Final = f"'’٬ {_NARROW}"
_POINTS: Final = {".": ".", ",": ",", "．": ".", "，": ","}
_DECIMAL: Final = "٫"

NUMBER_PATTERN: Final = (
    rf"(?>\d{{1,3}}(?:[ {_NARROW}]\d{{3}}){{2,}}(?!\d)(?:[.,٫]\d+)?"
    rf"|\d{{1,3}}(?: \d{{3}}[.,٫]|[{_NARROW}]\d{{3}}(?!\d)[.,٫]?)\d*"
    r"|\d+(?:[.,．，'’٫٬]\d+)*)"
)
"""Regular expression of a possible number. It is atomic: it matches all of a number or nothing."""

_LATIN_UNITS: Final = """
mm cm m km mg g kg t ml l bar mbar pa kpa mpa psi v kv mv a ma w kw mw kwh wh hz khz mhz ghz rpm nm db ppm
s ms min h d kb mb gb tb
"""
_OTHER_UNITS: Final = """
кг=kg мг=mg км=km см=cm мм=mm мл=ml бар=bar па=pa кпа=kpa мпа=mpa кв=kv вт=w квт=kw мвт=mw гц=hz кгц=khz дб=db мин=min
公斤=kg 千克=kg 毫克=mg 公里=km 千米=km 厘米=cm 公分=cm 毫米=mm 毫升=ml 伏特=v 千瓦=kw 赫兹=hz 分贝=db 分钟=min 分鐘=min
"""

UNITS: Final = {unit: unit for unit in _LATIN_UNITS.split()} | {
    unit: symbol for unit, _, symbol in (pair.partition("=") for pair in _OTHER_UNITS.split())
}
"""Symbol of a unit in lower-case Latin letters, by each of its spellings in lower case that mean nothing else."""

UNIT_PATTERN: Final = "(?i:" + "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True)) + ")"
"""Regular expression of a unit that may be written against its number, as in 5kg."""

_DATE: Final = (
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})-(?P<day>\d{1,2})(?![\d-])|年 ?(?P<m>\d{1,2})月 ?(?P<d>\d{1,2})[日号號])"
)
_DOTTED_DATE: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_NUMBER: Final = re.compile(rf"(?<![^\W_])(?<!\d[.,])(?:{_DATE}|{NUMBER_PATTERN})")
_PARTS: Final = re.compile(r"\d+|\D+")


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text.

    Attributes:
        readings: Possible values, at least one. Each has ASCII digits and ``.`` before a fraction, without grouping,
            leading zeros or trailing zeros of a fraction. Two numbers may be the same if they share a reading.
    """

    start: int
    end: int
    readings: tuple[str, ...]


def normal_numbers(text: str, mark: str = "") -> Iterator[Number]:
    """Yields the numbers of a text in order.

    A date of three numbers (2024-05-03, 3.5.2024, 2024年5月3日) has the reading ``2024-05-03``. Those of a version
    or an address stay together, joined by points.

    Args:
        mark: The character before fractions in it, ``.`` or ``,``, so that ``1.234`` has one reading; empty if that is
            not known.
    """
    for match in _NUMBER.finditer(text):
        token = match[0]
        if match["year"]:
            month, day = match["month"] or match["m"], match["day"] or match["d"]
            yield Number(match.start(), match.end(), (_date(match["year"], month, day),))
            continue
        numbers = number_forms(token)
        start, end = match.start(), match.start() + numbers[-1][1]
        if len(numbers) == 1:
            forms = numbers[0][2]
            if mark and len(forms) > 1:
                forms = (forms[_POINTS[_PARTS.findall(token)[1]] == mark],)
            yield Number(start, end, tuple(dict.fromkeys(_trimmed(form) for form in forms)))
        elif dotted := _DOTTED_DATE.fullmatch(token):
            yield Number(start, end, (_date(dotted[3], dotted[2], dotted[1]),))
        else:
            yield Number(start, end, (".".join(forms[0] for _, _, forms in numbers),))


def decimal_mark(text: str) -> str:
    """Returns the decimal mark of a text, ``.`` or ``,``; empty if its numbers do not determine one, or disagree.

    Numbers with one reading determine it: ``12.5`` and ``1,234.5`` a point, ``1.234.567`` a comma.
    """
    marks = set()
    for match in _NUMBER.finditer(text):
        numbers = () if match["year"] else number_forms(match[0])
        if len(numbers) != 1 or len(numbers[0][2]) != 1:
            continue
        separators = [_POINTS.get(piece) for piece in _PARTS.findall(match[0][: numbers[0][1]])[1::2]]
        if separators and separators[-1]:
            groups = "." not in numbers[0][2][0]
            marks.add({".": ",", ",": "."}[separators[-1]] if groups else separators[-1])
    return marks.pop() if len(marks) == 1 else ""


def _date(year: str, month: str, day: str) -> str:
    return f"{int(year):04}-{int(month):02}-{int(day):02}"


def number_forms(token: str) -> tuple[tuple[int, int, tuple[str, ...]], ...]:
    """Returns (start, end, forms) of the numbers of a match of ``NUMBER_PATTERN``, most likely form first.

    A form keeps the trailing zeros of a fraction: sections 4.1 and 4.10 are two.
    """
    pieces = _PARTS.findall(token)
    groups = [_ascii(piece) for piece in pieces[0::2]]
    separators = [_POINTS.get(piece, _DECIMAL if piece == _DECIMAL else "'") for piece in pieces[1::2]]
    forms = _forms(groups, separators)
    if forms:
        return ((0, sum(map(len, pieces[: 2 * len(groups) - 1])), forms),)
    found = []
    start = 0
    for piece in pieces:
        if piece[0].isdecimal():
            found.append((start, start + len(piece), (_whole(_ascii(piece)),)))
        start += len(piece)
    return tuple(found)


def _forms(groups: Sequence[str], separators: Sequence[str]) -> tuple[str, ...]:
    """Returns the forms of groups of digits as one number; none if they are several numbers."""
    if len(separators) >= len(groups):  # the last separator ends the sentence
        separators = separators[: len(groups) - 1]
    if not separators:
        return (_whole(groups[0]),)
    last, others = separators[-1], set(separators[:-1])
    decimal = f"{_whole(''.join(groups[:-1]))}.{groups[-1]}"
    if last in others or last == "'":  # all of them group
        return (_whole("".join(groups)),) if len({*separators}) == 1 and _are_grouped(groups) else ()
    if others:
        return (decimal,) if len(others) == 1 and _are_grouped(groups[:-1]) else ()
    if last != _DECIMAL and _are_grouped(groups):
        return _whole("".join(groups)), decimal
    return (decimal,)


def _are_grouped(groups: Sequence[str]) -> bool:
    first, *middle, last = groups
    if first[0] == "0" or not 1 <= len(first) <= 3 or len(last) != 3:
        return False
    sizes = {len(group) for group in middle}
    return sizes <= {3} or (sizes == {2} and len(first) <= 2)


def _ascii(digits: str) -> str:
    return digits if digits.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in digits)


def _whole(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _trimmed(form: str) -> str:
    return form.rstrip("0").rstrip(".") if "." in form else form
