"""Sentence boundaries in any script.

The boundaries follow from rules, and no rule needs to know the language. A mark that ends sentences and nothing else
(the full stop of Chinese, Hindi, Armenian, Amharic, Khmer and so on; Unicode's property Sentence_Terminal) is a
boundary wherever it stands. A full stop, question mark or ellipsis of Latin punctuation is one before white space and
a character that can start a sentence, which a lower-case letter of no script can, unless the word before it is an
abbreviation, an initial or an ordinal number. Line breaks separate table rows, list items and headings, so every line
break is a boundary too. Thai, Lao, Khmer and Burmese may write long paragraphs without a mark; they are cut at spaces
into parts of about the length of a sentence. A quotation starts and ends at sentence boundaries.

A boundary depends on the text from the end of the previous sentence to a few characters after it, and never on what
comes later, so a text may be split while it grows: all sentences but the last stay.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Final

_LINE = re.compile(r"[^\n]+")

_CLOSE: Final = "\"'”’)\\]»›」』】）》〉］｣〕"
_OPEN: Final = "\"'“‘„‚(\\[«‹「『【（《〈［｢〔¿¡*_–—-"
SENTENCE_TERMINALS: Final = (
    "\u0589\u061e\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0f0d\u0f0e\u104b\u1362\u1367\u1368"
    "\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1c3b\u1c3c\u1c7e\u1c7f"
    "\u2cf9-\u2cfb\u2e3c\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0"
    "\uaaf1\uabeb\ufe12\ufe15\ufe16\uff01\uff1f\uff61"
)
"""Marks that end a sentence wherever they stand, for a character class of a regular expression."""

_HAN: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_SPACED: Final = ".!?…‼‽⁇⁈⁉"
_BOUNDARY = re.compile(
    # marks that end sentences and nothing else; a full-width full stop is also a decimal point
    rf"(?P<terminal>(?:[{SENTENCE_TERMINALS}]|．(?![0-9０-９A-Za-zＡ-Ｚａ-ｚ]))[{SENTENCE_TERMINALS}．{_SPACED}]*[{_CLOSE}]*)"
    # Latin marks between ideographs, which have no space behind them
    rf"|(?P<han>(?<=[{_HAN}])[.!?][{_CLOSE}]*(?=[{_HAN}]))"
    # Latin marks, and the Greek question mark after Greek
    rf"|(?P<spaced>(?:(?<![{_SPACED}])[{_SPACED}]+|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e])"
    rf"[{_CLOSE}]*(?:[ \u00a0\u202f]»(?!\w))?)"
    rf"(?=\s+(?:[{_OPEN}]+\s*)?(?P<next>[^\W_]))"
)
_CLAUSE: Final = ",、，;；:：)）"
"""Characters that show, directly behind a mark, that its sentence goes on."""
_PARTICLES: Final = "とのがをはにでもや"
"""Japanese particles that show, directly behind a quotation, that the sentence around it goes on."""

_LOOK_BACK: Final = 24
"""Characters searched before a full stop; bounds the cost for text that consists of abbreviations."""

_BEFORE_STOP = re.compile(rf"(?:^|[\s{_OPEN}])([^\s(\[“‘„«‹]+)$")
_ABBREVIATED: Final = """
e.g i.e etc vs v cf c ca al viz approx incl p pp Dr Mr Mrs Ms Prof St Mt Sr Jr Gen Col Lt Maj Capt Sgt Adm Gov Sen Rep
No Nos Fig Figs Tab Sec Ch Vol Eq Inc Ltd Co Corp Rev ed eds Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
usw bzw Nr nr Abb Bd Hr Fr Str sog evtl ggf vgl inkl Mio Mrd Tel Std Tsd Jh Chr bspw Aufl Hrsg
Sra Srta Ud Uds pág págs núm aprox ej Mme Mlle dott Sig ecc nn dl dna ul vb vd örn yy bkz Doç TP Tp GS TS ThS PGS
г гг в вв др пр см рис стр им млн млрд тыс руб кв ул проф акад ред изд напр св обл κα αρ σελ τηλ δηλ πχ डॉ श्री प्रो
"""
_ABBREVIATIONS: Final = frozenset(_ABBREVIATED.split())
_NUMBERED: Final = "Art art Abs Kap Cap cap chap str min max op ley S"
_BEFORE_NUMBER: Final = frozenset(_NUMBERED.split())
"""Words that are abbreviations where a number follows."""
_CLOCK: Final = frozenset(("a.m", "p.m"))
_GERMAN: Final = "am vom zum im der die das des dem den ins seit bis und oder zur beim ab jeder jeden"
_ORDINAL_AFTER: Final = frozenset(_GERMAN.split())
"""German words after which a number with a full stop is an ordinal, also before a capital letter."""
_ROMAN = re.compile(r"[IVX]{2,7}")
_VOWELLESS = re.compile(r"[\u0370-\u052f]{2,4}|[A-Z][b-df-hj-np-tv-xzß]{1,3}")
_VOWELS = re.compile("[аеёиоуыэюяіїєўαεηιουωААЕЁИОУЫЭЮЯІЇЄЎΑΕΗΙΟΥΩ]")

_UNMARKED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_PAUSE = re.compile(rf"(?<=[{_UNMARKED}0-9)”\"'])[ \u00a0]+(?=[{_UNMARKED}0-9(“\"'])")
_UNMARKED_CHARACTER = re.compile(f"[{_UNMARKED}]")
_PART: Final = 75
"""Characters after which a sentence of a script without full stops is cut at a space."""
_REST: Final = 45
"""Characters that follow such a cut at least, before the next space and before the end."""
_LONG_PART: Final = 240
"""Characters beyond which a shorter piece begins a new part."""


_CLOSING: Final = "\"'”’»)]*_ "
_PLACEHOLDER_END = re.compile(r"(?:[^\s\d.]|\.{3})[>\]}]$")


def is_open(text: str) -> bool:
    """Whether a text ends without a mark: a title, a term, a line of a program, also with ``[a placeholder]``."""
    text = text.rstrip()
    return text.rstrip(_CLOSING)[-1:].isalnum() or _PLACEHOLDER_END.search(text) is not None


def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Splits a text into sentences.

    Returns:
        (start, end) character ranges in order, without surrounding white space, none empty; together they cover every
        character of the text that is not white space.
    """
    spans: list[tuple[int, int]] = []
    for line in _LINE.finditer(text):
        start = line.start()
        for boundary in _BOUNDARY.finditer(text, line.start(), line.end()):
            end = _sentence_end(text, start, boundary)
            if end is not None:
                _append_parts(spans, text, start, end)
                start = end
        _append_parts(spans, text, start, line.end())
    return tuple(spans)


def _sentence_end(text: str, start: int, boundary: re.Match[str]) -> int | None:
    """Returns where the sentence that starts at ``start`` ends, or None if the marks end none."""
    at, end = boundary.span()
    if boundary["spaced"] is None:
        quoted = text.find('"', at, end)
        if quoted >= 0 and text.count('"', start, quoted) % 2 == 0:
            end = quoted  # it opens the next sentence
        continues = text[end : end + 1] in (_CLAUSE if text[end - 1] not in _CLOSE else _CLAUSE + _PARTICLES)
        return None if continues and end < len(text) else end
    following = boundary["next"]
    if following.islower() and following.title() != following:
        return None  # Georgian letters are lower-case ones that no sentence capitalizes
    single = text[at] == "." and text[at + 1 : at + 2] not in tuple(_SPACED)
    return None if single and _abbreviates(text[max(start, at - _LOOK_BACK) : at], boundary) else end


def _abbreviates(before: str, boundary: re.Match[str]) -> bool:
    """Whether a full stop belongs to the word before it: an abbreviation, an initial or an ordinal number."""
    found = _BEFORE_STOP.search(before)
    if found is None:
        return False
    word, ahead = found[1], before[: found.start(1)].split()
    letters = word.split(".")
    if all(_is_letter(part) for part in letters):
        if len(letters) > 1:
            return word not in _CLOCK
        repeated = bool(ahead) and len(ahead[-1]) == 2 and ahead[-1][1] == "." and ahead[-1][0].isalpha()
        return not word[0].islower() or word in _ABBREVIATIONS or repeated or _is_initial(boundary)
    if word in _ABBREVIATIONS or (word in _BEFORE_NUMBER and boundary["next"].isdigit()):
        return True
    if word.isdigit() and len(word) <= 2:
        return not ahead or ahead[-1].lower() in _ORDINAL_AFTER
    if _ROMAN.fullmatch(word):
        return not ahead or ahead[-1][0].islower()
    return (
        _VOWELLESS.fullmatch(word) is not None and not _VOWELS.search(word) and not (ahead and ahead[-1][-1].isdigit())
    )


def _is_letter(part: str) -> bool:
    if not part or not part[0].isalpha() or "\u1100" <= part[0] < "\u1e00" or part[0] >= "\u2e80":
        return False
    return all(unicodedata.category(mark).startswith("M") for mark in part[1:])


def _is_initial(boundary: re.Match[str]) -> bool:
    at = boundary.start("next")
    return boundary["next"].isalpha() and boundary.string[at + 1 : at + 2] in (".", "")


def _append_parts(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    """Appends a sentence, in parts at spaces where it is a long one of a script without full stops."""
    if end - start >= _PART + _REST and _UNMARKED_CHARACTER.search(text, start, end):
        pauses = [pause.span() for pause in _PAUSE.finditer(text, start, end)]
        for (pause, piece), (following, _) in pairwise([*pauses, (end, end)]):
            fits = following - piece < _REST and following - start <= _LONG_PART
            if pause - start >= _PART and end - piece >= _REST and not fits:
                _append_trimmed(spans, text, start, pause)
                start = pause
    _append_trimmed(spans, text, start, end)


def _append_trimmed(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end:
        spans.append((start, end))
