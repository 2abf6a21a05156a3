"""How long work says how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Shows what is being done. Called from one thread at a time."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """A step begins, and the one before it is over.

        Args:
            what: What is done, for people.
            total_bytes: How much there is to do; None where nobody knows.
        """

    def advance(self, done_bytes: int) -> None:
        """So many more bytes of the step are done."""

    def detail(self, line: str) -> None:
        """A line from a program that does the step; not trusted."""


class Silent:
    """Shows nothing."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Does nothing."""

    def advance(self, done_bytes: int) -> None:
        """Does nothing."""

    def detail(self, line: str) -> None:
        """Does nothing."""
