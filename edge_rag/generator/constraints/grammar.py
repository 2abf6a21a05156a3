"""Grammars as constraints: what an llguidance matcher allows, as immutable states.

A matcher changes in place. States share one as long as each is followed once, as the engine does; following a state a
second time copies the matcher and takes back what it consumed since.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason
from edge_rag.engine.constraint import Ended, Forced, Masked, Move, OneOf
from edge_rag.errors import InvalidRequest

_FEW = 1024
"""Up to here it is quicker to pick the allowed logits out than to mask the others; more than end tokens there are."""

_NO_TEXT = "no text can satisfy it"

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class GrammarRules:
    """What holds for a whole answer.

    Attributes:
        field: Field of the request that the grammar is from, named in errors.
        end_tokens: Tokens with which the model ends its turn.
        vocabulary_size: Number of logits; token ids from here on do not exist.
    """

    field: str
    end_tokens: frozenset[int]
    vocabulary_size: int


class GrammarMatcher:
    """A matcher and how far it went.

    Args:
        matcher: Of a compiled grammar; changed by this alone.
        rules: What holds for the answer.
        said: Tokens it has consumed.
    """

    def __init__(self, matcher: LLMatcher, rules: GrammarRules, said: int = 0) -> None:
        self._matcher = matcher
        self._rules = rules
        self.said = said

    def fork(self, said: int) -> GrammarMatcher:
        """Returns a matcher of its own that has consumed only that many of the tokens."""
        fork = GrammarMatcher(self._matcher.deep_copy(), self._rules, said)
        fork._matcher.rollback(self.said - said)
        fork._check()
        return fork

    def consume(self, tokens: tuple[int, ...]) -> None:
        """Takes tokens.

        Raises:
            InvalidRequest: One of them is not allowed, or the grammar grew beyond its limits.
        """
        self._matcher.consume_tokens(list(tokens))
        self._check()
        self.said += len(tokens)

    def move(self) -> Move:
        """Returns what may come next.

        Raises:
            InvalidRequest: Nothing may, though the text is not complete; or the grammar grew beyond its limits.
        """
        self._check()
        if self._matcher.is_stopped():
            return Ended(FinishReason.STOP)
        if forced := self._matcher.compute_ff_tokens():
            return Forced(tuple(forced))
        allowed = self._allowed()
        self._check()
        if np.count_nonzero(allowed) > _FEW:
            return Masked(allowed)
        tokens = np.flatnonzero(allowed)
        if self._rules.end_tokens.issuperset(tokens.tolist()):
            if self._matcher.is_accepting():
                return Ended(FinishReason.STOP)
            raise InvalidRequest(self._rules.field, _NO_TEXT)
        if tokens.size == 1:
            return Forced((int(tokens[0]),))
        return OneOf(tokens, np.zeros(tokens.size, np.float32))

    def _allowed(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, count=self._rules.vocabulary_size, bitorder="little").view(np.bool_)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidRequest(self._rules.field, short_reason(self._matcher.get_error()))


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """Text of a grammar, so far and what can follow. Made by ``GrammarCompiler``. Not for several threads at once.

    Attributes:
        matcher: What says so.
        said: Tokens said.
        move: What may come next.
    """

    matcher: GrammarMatcher
    said: int
    move: Move

    def next(self) -> Move:
        """Returns the allowed tokens, the only run left, or the end; end tokens are allowed where the text may end."""
        return self.move

    def after(self, tokens: tuple[int, ...]) -> Grammar:
        """Follows the tokens.

        Raises:
            InvalidRequest: The grammar grew beyond its limits, or leads nowhere; or a token was not allowed.
        """
        if not tokens:
            return self
        matcher = self.matcher if self.matcher.said == self.said else self.matcher.fork(self.said)
        matcher.consume(tokens)
        return Grammar(matcher, matcher.said, matcher.move())


def short_reason(error: str) -> str:
    """Returns the part of llguidance's message that says what is wrong, without dumps of its state."""
    if cause := re.search(r"^error: (.+)$", error, re.MULTILINE):
        return cause[1]
    lines = error.replace("<non-verbose/>", "").strip().splitlines() or ["unknown reason"]
    return _NO_TEXT if lines[0] == "NoExtensionBias" else lines[0][:_LONGEST_REASON]
