"""Conversations: questions that may leave something to the turns before them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from edge_rag.client.turns import TurnRecorder, as_markdown
from edge_rag.core.answer import Finished
from edge_rag.core.limits.request_fields import newest_turns
from edge_rag.core.query import Turn
from edge_rag.wire.types import AskEvent, AskOptions

_Ask: TypeAlias = Callable[[str, AskOptions], AsyncGenerator[AskEvent, None]]


class AsyncConversation:
    """A conversation with a collection, one question at a time; ``AsyncClient.conversation`` makes one.

    The daemon keeps nothing of it: each question carries the turns before it, as many as the daemon takes.

    Attributes:
        options: How the next question is answered; may be set.
    """

    def __init__(self, ask: _Ask, options: AskOptions) -> None:
        self.options = options
        self._ask = ask
        self._turns = newest_turns(options.turns)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns that the next question carries, oldest first, at most 8; older ones are forgotten, 4 at a time."""
        return self._turns

    async def ask(self, question: str) -> AsyncGenerator[AskEvent, None]:
        """Asks a question and streams the answer, as ``AsyncClient.ask`` does.

        The answer is a turn of the conversation from its last event on. A question that fails, or whose generator is
        closed early, is none.

        Args:
            question: The question. If it refers to earlier turns ("and how often?"), it is completed from them, and
                ``PassagesReceived.standalone_question`` is searched for as well.
        """
        recorder = TurnRecorder(question)
        async with aclosing(self._ask(question, replace(self.options, turns=self._turns))) as events:
            async for event in events:
                recorder.take(event)
                if isinstance(event, Finished):
                    self._turns = newest_turns((*self._turns, recorder.turn()))
                yield event

    def clear(self) -> None:
        """Forgets all turns: the next question begins a new conversation."""
        self._turns = ()

    def as_markdown(self) -> str:
        """Returns the turns as Markdown: each question with its answer and the quoted sources."""
        return as_markdown(self._turns)
