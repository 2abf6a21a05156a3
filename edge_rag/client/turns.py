"""Turns of a conversation, collected from the events of answers; pure."""

from __future__ import annotations

from collections.abc import Sequence

from edge_rag.core.answer import Citation, TextDelta
from edge_rag.core.query import Turn, TurnSource
from edge_rag.wire.types import AskEvent, PassagesReceived


class TurnRecorder:
    """Collects one turn."""

    def __init__(self, question: str) -> None:
        self._question = question
        self._sections: tuple[tuple[str, ...], ...] = ()
        self._answer: list[str] = []
        self._sources: dict[TurnSource, None] = {}

    def take(self, event: AskEvent) -> None:
        """Takes the next event of the answer."""
        match event:
            case PassagesReceived():
                self._sections = tuple(passage.context for passage in event.passages)
            case TextDelta():
                self._answer.append(event.text)
            case Citation():
                section = self._sections[event.passage] if event.passage < len(self._sections) else ()
                self._sources[TurnSource(event.document, section, event.text)] = None

    def turn(self) -> Turn:
        """Returns the turn: the question, the text so far and each cited source once."""
        return Turn(self._question, "".join(self._answer), tuple(self._sources))


def as_markdown(turns: Sequence[Turn]) -> str:
    """Returns turns as Markdown: each question in bold, its answer, and its sources as a numbered list of quotes."""
    return "\n".join(_markdown(turn) for turn in turns)


def _markdown(turn: Turn) -> str:
    lines = [f"**{' '.join(turn.question.split())}**", "", turn.answer.strip(), ""]
    for number, source in enumerate(turn.sources, start=1):
        lines.append(f"{number}. {', '.join(filter(None, (source.document, ' > '.join(source.section))))}")
        lines += [f"   > {line}" for line in source.text.splitlines()]
    return "\n".join(lines + [""] * bool(turn.sources))
