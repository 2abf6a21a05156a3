"""Asks a language model to write a question so that it stands alone over the turns before it; pure.

What it may write is bounded: one line, whose numbers and codes are all of the conversation. What it wrote is used only
if it is another question than the one as asked and has a word of that one; else the rules' wording stays alone
(``retriever/wordings/standalone.py``). In either case the question as asked is searched for, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from edge_rag.analysis.terms import terms_of
from edge_rag.core.generation import CompletionRequest, Conversation
from edge_rag.core.ids import RequestId
from edge_rag.core.query import Priority, Regex, RequestContext, Sampling, Turn

MAX_TOKENS: Final = 64
"""Most tokens of a rewritten question; one that is cut there is not used."""

MAX_CHARACTERS: Final = 400
"""Most characters of a rewritten question."""

TURNS: Final = 3
"""Turns that the model reads, the last ones."""

READ_CHARACTERS: Final = 300
"""Characters that it reads of each question and answer, and of the question to rewrite."""

_SYSTEM: Final = (
    "You rewrite the last question of a conversation so that it can be understood alone. Replace pronouns by what they "
    "stand for and add what is left out. Do not answer it. Keep its language. Write one question and nothing else."
)

_MOST_CODES: Final = 64
_CODE: Final = re.compile(r"(?=[\w.,:/+-]*\d)\w(?:[\w.,:/+-]*\w)?")
_ELSE: Final = r"[^\n\r\d]"
_APART: Final = r"[^\w\n\r]"


def rewriting_request(question: str, turns: Sequence[Turn], context: RequestContext) -> CompletionRequest:
    """Returns what a language model is asked.

    Args:
        turns: Earlier turns, oldest first, at least one.
    """
    request_id = context.request_id or RequestId("")
    lines = ["Conversation:"]
    for turn in turns[-TURNS:]:
        lines += (f"Question: {_line(turn.question)}", f"Answer: {_line(turn.answer)}")
    text = "\n".join((*lines, "", f"Last question: {_line(question)}", "The last question, understood alone:"))
    codes = sorted(_codes(question, turns), key=lambda code: (-len(code), code))[:_MOST_CODES]
    code = "|".join(map(_escaped, codes))
    pattern = f"(?:{code})?(?:{_ELSE}|{_APART}(?:{code}))+" if codes else f"{_ELSE}+"
    return CompletionRequest(
        request_id=request_id,
        conversation=Conversation(_SYSTEM, (text,)),
        sampling=Sampling(max_tokens=MAX_TOKENS),
        priority=Priority.NORMAL if context.priority is None else context.priority,
        client=context.client,
        deadline=context.deadline,
        format=Regex(pattern),
    )


def rewritten_question(text: str, question: str, turns: Sequence[Turn]) -> str | None:
    """Returns the question that a language model wrote; None if it is not to be searched for."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS or len(text.splitlines()) != 1:
        return None
    if not set(_CODE.findall(text)) <= _codes(question, turns):
        return None
    asked, written = _terms(question), _terms(text)
    shares = not asked or bool(asked & written)
    return text if shares and written and written != asked else None


def _line(text: str) -> str:
    return " ".join(text[:READ_CHARACTERS].split())


def _codes(question: str, turns: Sequence[Turn]) -> set[str]:
    read = [_line(question), *(_line(text) for turn in turns[-TURNS:] for text in (turn.question, turn.answer))]
    return {code for text in read for code in _CODE.findall(text)}


def _terms(text: str) -> set[str]:
    return {term for *_, term in terms_of(text)}


def _escaped(code: str) -> str:
    return re.sub(r"([^\w])", r"\\\1", code)
