"""Compiles an answer format and follows it for a while, in a process with limits; see ``format_check``.

The vocabulary is the 256 bytes, so that a trial depends on no model and costs little. It finds what the bounds of
``regex_size`` and ``schema_size`` leave open: anything in llguidance that takes unexpected time, memory or stack.
"""

from __future__ import annotations

import json
import random
from typing import Final

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from edge_rag.core.query import AnswerFormat, JsonSchema, Regex
from edge_rag.errors import InvalidRequest
from edge_rag.generator.constraints.grammar import COMPILER_LIMITS, grammar_text, short_reason

_END: Final = 256
_STEPS: Final = 256
"""Bytes chosen in a trial; forced ones are not counted."""


class _Bytes:
    """The vocabulary of bytes, in llguidance's interface."""

    def __init__(self) -> None:
        self.tokens = [bytes((byte,)) for byte in range(_END)] + [b"<end>"]
        self.special_token_ids = [_END]
        self.eos_token_id = _END
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


_TOKENIZER: Final = LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=_END + 1)


def encode_trial(form: AnswerFormat) -> bytes:
    if isinstance(form, JsonSchema):
        return json.dumps({"json_schema": form.schema}).encode()
    return json.dumps({"regex": form.pattern}).encode()


def try_format(message: bytes) -> bytes:
    """Returns why a format cannot be enforced; empty if it can."""
    fields = json.loads(message)
    form = JsonSchema(fields["json_schema"]) if "json_schema" in fields else Regex(fields["regex"])
    try:
        matcher = LLMatcher(_TOKENIZER, grammar_text(form), log_level=0, limits=COMPILER_LIMITS)
    except InvalidRequest as refused:
        return refused.problem.encode("utf-8", "replace")
    matcher.compute_bitmask()
    if matcher.is_error():
        return short_reason(matcher.get_error()).encode()
    _follow(matcher)
    return b""


def _follow(matcher: LLMatcher) -> None:
    """Follows a random text. A limit reached on the way is one that a request may never reach."""
    choice = random.Random(0)
    for _ in range(_STEPS):
        if forced := matcher.compute_ff_tokens():
            matcher.consume_tokens(forced)
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [byte for byte in range(_END) if mask >> byte & 1]
        if not allowed or matcher.is_stopped() or matcher.is_error():
            return
        matcher.consume_token(choice.choice(allowed))


try_format(encode_trial(JsonSchema('{"type": "array", "items": {"type": "string", "pattern": "a+"}}')))
try_format(encode_trial(Regex("(a")))
