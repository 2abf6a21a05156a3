"""Bounds the size of a regular expression before anything compiles it, from its text alone.

Counts of nested repetitions multiply: ``(a{1000}){1000}`` has 15 characters and one match, of a million characters.
Where only one text can follow, llguidance appends it without a limit of its own, and takes hundreds of bytes of memory
for each byte of it. Such a text is a prefix of the shortest rest of a match, and ``shortest`` bounds those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DEEPEST_GROUPS: Final = 250
"""Most groups inside one another."""

MOST: Final = 10**12
"""Bounds are not distinguished above this one, so that no number here grows with a pattern's text."""

_CHARACTER_BYTES: Final = 4
"""Most bytes of a character in UTF-8."""

_COUNTS: Final = re.compile(r"\{\s*(\d*)\s*(?:(,)\s*(\d*)\s*)?\}")
_ESCAPE: Final = re.compile(r"\\(?:[pP](?:\{[^}]*\}|.)|[xuU](?:\{[^}]*\}|[0-9A-Fa-f]{2,8})|b\{[^}]*\}|.)", re.DOTALL)
_GROUP: Final = re.compile(r"\((?:\?(?:P?<[^>]*>|P?[=!]|<[=!]|[A-Za-z-]*(:|\))))?")
_VERBOSE: Final = re.compile(r"\(\?[A-Za-z]*x")
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class RegexSize:
    """Upper bounds of a regular expression.

    Attributes:
        positions: States of an automaton that finds matches: its characters, with all repetitions written out.
    """

    shortest: int
    positions: int

    def followed_by(self, other: RegexSize) -> RegexSize:
        return RegexSize(_most(self.shortest + other.shortest), _most(self.positions + other.positions))

    def or_else(self, other: RegexSize) -> RegexSize:
        return RegexSize(max(self.shortest, other.shortest), _most(self.positions + other.positions))

    def repeated(self, least: int, most: int | None) -> RegexSize:
        """Returns the bounds of a repetition; ``most`` is None for no end."""
        turns = max(least, 1)
        return RegexSize(_most(self.shortest * turns), _most(self.positions * max(most or 0, turns)))

    def together_with(self, other: RegexSize) -> RegexSize:
        states = _most(self.positions * other.positions)
        return RegexSize(_most(states * _CHARACTER_BYTES), states)


NOTHING: Final = RegexSize(0, 1)
"""Bounds of the empty text."""


def regex_size(pattern: str) -> RegexSize:
    """Returns upper bounds of a pattern in the syntax of the Rust crate ``regex``, which llguidance takes.

    The pattern need not be valid. Where white space may separate a count from what it repeats (flag ``x``), all counts
    are multiplied, even if they belong to different parts.
    """
    if _VERBOSE.search(pattern):
        return _coarse(pattern)
    scanner = _Scanner()
    at = 0
    while at < len(pattern):
        at = scanner.step(pattern, at)
    return scanner.finish()


class _Scanner:
    """Reads a pattern from left to right; keeps the open groups on a stack of its own."""

    def __init__(self) -> None:
        self._open: list[tuple[RegexSize | None, RegexSize]] = []
        self._branches: RegexSize | None = None  # finished alternatives of the innermost group
        self._sequence = NOTHING
        self._last = NOTHING  # what a count behind it repeats; not in the sequence yet

    def step(self, pattern: str, at: int) -> int:
        """Reads one element; returns where the next one begins."""
        character = pattern[at]
        if character == "(":
            return self._group(pattern, at)
        if character == ")":
            inner = self._group_size()
            if self._open:
                self._branches, self._sequence = self._open.pop()
            self._last = inner
            return at + 1
        if character == "|":
            self._take(NOTHING)
            self._branches = self._sequence if self._branches is None else self._branches.or_else(self._sequence)
            self._sequence = NOTHING
            return at + 1
        if character in "*+?":
            self._last = self._last.repeated(0 if character != "+" else 1, None if character != "?" else 1)
            return at + 1
        if character == "{" and (counts := _COUNTS.match(pattern, at)):
            least = _count(counts[1]) or 0
            self._last = self._last.repeated(least, _count(counts[3]) if counts[2] else least)
            return counts.end()
        self._take(RegexSize(len(character.encode("utf-8", "surrogatepass")), 1))
        if character == "\\" and (escape := _ESCAPE.match(pattern, at)):
            self._last = RegexSize(_CHARACTER_BYTES, 1)
            return escape.end()
        if character == "[":
            self._last = RegexSize(_CHARACTER_BYTES, 1)
            return _class_end(pattern, at)
        if character == ".":
            self._last = RegexSize(_CHARACTER_BYTES, 1)
        return at + 1

    def finish(self) -> RegexSize:
        size = self._group_size()
        while self._open:
            self._branches, sequence = self._open.pop()
            self._sequence, self._last = sequence.followed_by(size), NOTHING
            size = self._group_size()
        return size

    def _group(self, pattern: str, at: int) -> int:
        opening = _GROUP.match(pattern, at)
        self._take(NOTHING)
        if opening is not None and opening[1] == ")":  # flags alone
            return opening.end()
        if len(self._open) >= DEEPEST_GROUPS:
            raise ValueError(f"groups are nested more than {DEEPEST_GROUPS} deep")
        self._open.append((self._branches, self._sequence))
        self._branches, self._sequence = None, NOTHING
        return at + 1 if opening is None else opening.end()

    def _take(self, following: RegexSize) -> None:
        self._sequence = self._sequence.followed_by(self._last)
        self._last = following

    def _group_size(self) -> RegexSize:
        self._take(NOTHING)
        return self._sequence if self._branches is None else self._branches.or_else(self._sequence)


def _class_end(pattern: str, at: int) -> int:
    """Returns the position behind a character class; classes may contain classes."""
    depth = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character == "[":
            depth += 1
            at += pattern.startswith("^", at + 1)
            dashes = at
            while pattern.startswith("-", at + 1):
                at += 1
            # A bracket in first place is a member; after dashes it ends the class.
            at += at == dashes and pattern.startswith("]", at + 1)
        elif character == "]":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return at


def _coarse(pattern: str) -> RegexSize:
    turns = 1
    for counts in _COUNTS.finditer(pattern):
        turns = _most(turns * max(_count(counts[1]) or 0, _count(counts[3]) or 0, 1))
    size = RegexSize(_CHARACTER_BYTES * len(pattern), len(pattern) + 1)
    return size.repeated(turns, turns)


def _count(digits: str | None) -> int | None:
    if not digits:
        return None
    return MOST if len(digits) > _DIGITS else int(digits)


def _most(value: int) -> int:
    return min(value, MOST)
