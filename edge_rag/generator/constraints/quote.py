"""The constraint of QUOTE mode: only complete sentences of the passages can be generated.

The candidates form a trie over their tokens. If several branches remain, the model's logits decide together with the
retrieval evidence; if one remains, its tokens are forced. With evidence e of a candidate and weight w, a
branch b gets the bias

    bias(b) = log sum over candidates c below b of exp(w e(c))

which is the logarithm, up to a constant, of the prior mass below it: the prior is softmax(w e), and model and prior are
multiplied. After a sentence the end token competes with the remaining candidates, as a candidate whose evidence is that
of the best quoted sentence less margin / (number of quoted sentences): each further sentence must be closer to the
best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from edge_rag.core.answer import FinishReason
from edge_rag.engine.constraint import Ended, Forced, NextTokens, OneOf


@dataclass(frozen=True, slots=True)
class Quotable:
    """A sentence that may be quoted.

    Attributes:
        passage: 0-based rank of its passage.
        start: First character in the passage's text.
        end: One past the last.
        text: Exactly the passage's text in that range.
        tokens: Its tokens, its marker ``[n]`` included; at least one.
        evidence: How well it answers the question; larger is better.
    """

    passage: int
    start: int
    end: int
    text: str
    tokens: tuple[int, ...]
    evidence: float


@dataclass(frozen=True, slots=True)
class QuoteRules:
    """Rules of an answer.

    Attributes:
        end_token: Ends the answer.
        max_sentences: Most sentences, at least 1.
        max_tokens: Most tokens in total.
        prior_weight: Weight of the evidence against the model's logits, at least 0.
        margin: How far below the best quoted sentence the evidence of a second one may be, at least 0; half of it for a
            third, a third of it for a fourth.
    """

    end_token: int
    max_sentences: int
    max_tokens: int
    prior_weight: float
    margin: float


@dataclass(frozen=True, slots=True)
class Quotation:
    """State of an answer. Made by ``quotation``.

    Attributes:
        rules: Rules of the answer.
        left: Candidates not quoted yet that still fit, ascending by tokens.
        live: Those that begin with the tokens of the current sentence.
        depth: Tokens of the current sentence so far.
        quoted: Quoted sentences, in order.
        spent: Tokens so far.
        ended: Whether the answer has ended.
    """

    rules: QuoteRules
    left: tuple[Quotable, ...]
    live: tuple[Quotable, ...]
    depth: int = 0
    quoted: tuple[Quotable, ...] = ()
    spent: int = 0
    ended: bool = False

    def next(self) -> NextTokens:
        """Returns the branches with their bias, the only remaining run, or the end."""
        if self.ended:
            return Ended(FinishReason.STOP)
        may_end = self.depth == 0 and bool(self.quoted)
        if not may_end and (run := _common_run(self.live[0].tokens, self.live[-1].tokens, self.depth)):
            return Forced(run)
        weight = self.rules.prior_weight
        biases = {
            token: _log_sum_exp([weight * candidate.evidence for candidate in below])
            for token, below in groupby(self.live, key=lambda candidate: candidate.tokens[self.depth])
        }
        if may_end:
            best = max(candidate.evidence for candidate in self.quoted)
            biases[self.rules.end_token] = weight * (best - self.rules.margin / len(self.quoted))
        allowed, largest = sorted(biases), max(biases.values())
        return OneOf(np.array(allowed, np.int64), np.array([biases[token] - largest for token in allowed], np.float32))

    def after(self, tokens: tuple[int, ...]) -> Quotation:
        """Returns the state after tokens."""
        state = self
        while tokens:
            if state.depth == 0 and state.quoted and tokens[0] == state.rules.end_token:
                return replace(state, ended=True, spent=state.spent + 1)
            tokens, state = state._follow(tokens)
        return state

    def _follow(self, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], Quotation]:
        """Takes tokens up to the end of the current sentence; returns the other tokens and the state."""
        sentence_end = max(len(candidate.tokens) for candidate in self.live) - self.depth
        run = tokens[:sentence_end]
        stop = self.depth + len(run)
        for candidate in self.live:
            length = len(candidate.tokens)
            if candidate.tokens[self.depth :] == run[: length - self.depth]:
                return tokens[length - self.depth :], self._close(candidate)
        live = tuple(c for c in self.live if c.tokens[self.depth : stop] == run)
        return tokens[len(run) :], replace(self, live=live, depth=stop, spent=self.spent + len(run))

    def _close(self, sentence: Quotable) -> Quotation:
        """Returns the state after a complete sentence."""
        spent = self.spent + len(sentence.tokens) - self.depth
        left = tuple(c for c in self.left if c is not sentence and spent + len(c.tokens) <= self.rules.max_tokens)
        quoted = (*self.quoted, sentence)
        ended = len(quoted) == self.rules.max_sentences or not left
        return replace(self, left=left, live=left, depth=0, quoted=quoted, spent=spent, ended=ended)


def quotation(candidates: Iterable[Quotable], rules: QuoteRules) -> Quotation:
    """Returns the initial state.

    Args:
        candidates: Sentences, those of the best passage first. Of candidates with equal text or tokens, and of those
            whose tokens are a prefix of another's, one is kept: the earlier place, with the larger evidence.
        rules: Rules of the answer; candidates longer than ``max_tokens`` are dropped.

    Returns:
        The state before the first token; already ended if there is no candidate.
    """
    unique: dict[str, Quotable] = {}
    for candidate in candidates:
        if candidate.tokens and len(candidate.tokens) <= rules.max_tokens:
            first = unique.setdefault(candidate.text, candidate)
            if candidate.evidence > first.evidence:
                unique[candidate.text] = replace(first, evidence=candidate.evidence)
    left: list[Quotable] = []
    for candidate in sorted(unique.values(), key=lambda c: c.tokens):
        if left and candidate.tokens[: len(left[-1].tokens)] == left[-1].tokens:
            left[-1] = replace(left[-1], evidence=max(left[-1].evidence, candidate.evidence))
        else:
            left.append(candidate)
    return Quotation(rules, tuple(left), tuple(left), ended=not left)


def _common_run(first: Sequence[int], last: Sequence[int], depth: int) -> tuple[int, ...]:
    """Returns the tokens from ``depth`` on that the first and the last of a sorted range, and so all of them, share."""
    end = depth
    while end < len(first) and end < len(last) and first[end] == last[end]:
        end += 1
    return tuple(first[depth:end])


def _log_sum_exp(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
