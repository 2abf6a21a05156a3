"""Whether a JSON value validates under a schema, by the grammar that constrains generated answers.

So a schema means the same wherever it is used. The values that are tried are short, and the schema has passed
``format_check``; what a schema may still cost is bounded by llguidance's limits and an allowance of processor time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from llguidance import LLMatcher, LLTokenizer

from edge_rag.core.query import JsonSchema
from edge_rag.errors import InvalidRequest
from edge_rag.generator.constraints.grammar import COMPILER_LIMITS, grammar_text, short_reason

ALLOWANCE_S: Final = 2.0
"""Processor seconds that all checks of one answer may take."""

_BYTES: Final = LLTokenizer("byte")


class SchemaAllowance:
    """Processor time for the checks of one answer."""

    def __init__(self, seconds: float = ALLOWANCE_S, clock: Callable[[], float] = time.thread_time) -> None:
        self._left = seconds
        self._clock = clock

    def spend(self, check: Callable[[], bool]) -> bool:
        """Returns what a check returns.

        Raises:
            InvalidRequest: Nothing was left for it.
        """
        if self._left <= 0:
            raise InvalidRequest("json_schema", "takes too much time to check values against; use a simpler one")
        started = self._clock()
        try:
            return check()
        finally:
            self._left -= self._clock() - started


class ValueCheck:
    """Checks values against one schema."""

    def __init__(self, schema: Mapping[str, Any], allowance: SchemaAllowance) -> None:
        grammar = grammar_text(JsonSchema(json.dumps(schema)))
        self._allowance = allowance
        self._matcher = LLMatcher(_BYTES, grammar, log_level=0, limits=COMPILER_LIMITS)
        if self._matcher.is_error():
            raise InvalidRequest("json_schema", short_reason(self._matcher.get_error()))

    def accepts(self, text: str) -> bool:
        return self._allowance.spend(lambda: self._validates(text.encode()))

    def _validates(self, text: bytes) -> bool:
        matcher, tokens = self._matcher.deep_copy(), list(text)
        if matcher.validate_tokens(tokens) < len(tokens):
            return False
        return matcher.consume_tokens(tokens) and matcher.is_accepting()
