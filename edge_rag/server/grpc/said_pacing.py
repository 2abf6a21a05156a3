"""Has what is said to a peer go in fewer messages: what comes close together is joined.

A message costs both sides about as much as a token's work besides the model, and a small board that borrows a fast
machine pays it for every token of every answer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Final

from edge_rag.core.generation import Generated, GenerationFailed
from edge_rag.core.said import SaidEvent, SaidText, SaidTokens

TOGETHER_S: Final = 0.05
"""Time between two messages of words, seconds: words of one answer that come within it go together."""


async def paced(
    take: Callable[[], Coroutine[None, None, SaidEvent | None]],
    clock: Callable[[], float],
    together_s: float = TOGETHER_S,
) -> AsyncGenerator[SaidEvent, None]:
    """Yields what is said, to its end: the first words and whatever is no word at once, further words at most so often.

    Args:
        take: Waits for what is said next.
        clock: Monotonic seconds.
        together_s: Shortest time between two messages of words, seconds.
    """
    next_at = -math.inf
    held: SaidEvent | None = None
    coming = asyncio.ensure_future(take())
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=None if held is None else max(0.0, next_at - clock()))
            said = coming.result() if done else None
            joined = None if held is None or said is None else _joined(held, said)
            if held is not None and joined is None:
                yield held
                next_at, held = clock() + together_s, None
            if not done:
                continue
            if said is None:
                return
            if isinstance(said, SaidTokens | SaidText):
                held = joined or said
            else:
                yield said
                if isinstance(said, Generated | GenerationFailed):
                    return
            coming = asyncio.ensure_future(take())
            if held is not None and clock() >= next_at:
                yield held
                next_at, held = clock() + together_s, None
    finally:
        coming.cancel()


def _joined(held: SaidEvent, said: SaidEvent) -> SaidEvent | None:
    """Returns both as one; None where they are of different kinds."""
    match held, said:
        case SaidTokens(), SaidTokens():
            return SaidTokens(held.tokens + said.tokens)
        case SaidText(), SaidText():
            return SaidText(held.text + said.text)
        case _:
            return None
