"""Compiles answer formats (JSON schema, regular expression) to constraints with llguidance.

Constraint states are immutable, but an llguidance matcher changes in place. States share one matcher as long as each is
followed once, as the engine does; following a state a second time copies the matcher and rolls it back.

Hostile formats are stopped by bounds of their size before compilation, by llguidance's limits during compilation and in
a step, and by an allowance of processor time for all steps of a request.
"""

from __future__ import annotations

import json
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason
from edge_rag.core.query import AnswerFormat, JsonSchema
from edge_rag.engine.constraint import Ended, Forced, Masked, NextTokens, OneOf
from edge_rag.errors import InvalidRequest, ModelFolderInvalid, Overloaded
from edge_rag.generator.constraints.regex_size import RegexSize, regex_size
from edge_rag.generator.constraints.schema_size import SchemaSize, schema_size

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions


_FEW = 1024
"""Up to this number of tokens, selecting logits is faster than masking; larger than any number of end tokens."""

_NO_TEXT = "no text can satisfy it"

_MAX_REASON = 300

LONGEST_FORCED: Final = 16_384
"""Most bytes that a format may ask for in one piece: no answer is longer, and llguidance takes memory for each byte."""

LARGEST_MULTIPLE: Final = 10_000
"""Largest ``multipleOf``, and least common multiple of several: an automaton has a state for each remainder."""

GRAMMAR_MEMORY_BYTES: Final = 32 << 20
"""Most memory of all compiled formats, as estimated from their sizes."""

_BYTES_A_GRAMMAR: Final = 64 << 10
_BYTES_A_CHARACTER: Final = 100
_BYTES_A_FORCED_BYTE: Final = 400
"""Measured: 40 to 100 KiB for common formats, 95 bytes for a character of a schema's text, 350 for a forced byte."""

_RETRY_S: Final = 2.0

FIRST_ALLOWANCE_S: Final = 1.0
"""Processor seconds that the constraint of a request may take in any case."""

TOKEN_ALLOWANCE_S: Final = 0.02
"""Processor seconds that it may take besides for each token; a mask of a sound format takes less than a tenth."""


@dataclass(frozen=True, slots=True)
class GrammarRules:
    """Rules of an answer.

    Attributes:
        vocabulary_size: Number of logits; larger token ids do not exist.
    """

    field: str
    end_tokens: frozenset[int]
    vocabulary_size: int


class GrammarBudget:
    """Bounds the memory of compiled formats, whether their requests run or wait. Any thread.

    Args:
        total_bytes: Most bytes of all; one caller gets at most half of what the others leave.
    """

    def __init__(self, total_bytes: int = GRAMMAR_MEMORY_BYTES) -> None:
        self._total = total_bytes
        self._lock = threading.RLock()  # a matcher may be collected in the middle of ``hold``
        self._used: Counter[str] = Counter()

    @property
    def used_bytes(self) -> int:
        return self._used.total()

    def hold(self, client: str, needed_bytes: int, owner: object) -> None:
        """Takes memory for a caller until an object is collected.

        Raises:
            Overloaded: There is not enough left for this caller.
        """
        with self._lock:
            others = self._used.total() - self._used[client]
            if self._used[client] and self._used[client] + needed_bytes > (self._total - others) // 2:
                raise Overloaded("answer format", _RETRY_S)
            if others + needed_bytes > self._total:
                raise Overloaded("answer format", _RETRY_S)
            self._used[client] += needed_bytes
        weakref.finalize(owner, self._release, client, needed_bytes)

    def _release(self, client: str, held_bytes: int) -> None:
        with self._lock:
            self._used[client] -= held_bytes
            if not self._used[client]:
                del self._used[client]


class GrammarMatcher:
    """A matcher and the number of tokens it has consumed.

    Args:
        used_s: Processor seconds already used.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        rules: GrammarRules,
        consumed: int = 0,
        used_s: float = 0.0,
        claim: object = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._matcher = matcher
        self._rules = rules
        self.consumed = consumed
        self._used_s = used_s
        self._claim = claim
        self._clock = clock

    def fork(self, consumed: int) -> GrammarMatcher:
        """Returns a copy, rolled back to a number of consumed tokens."""
        fork = GrammarMatcher(self._matcher.deep_copy(), self._rules, consumed, self._used_s, self._claim, self._clock)
        fork._matcher.rollback(self.consumed - consumed)
        fork._check()
        return fork

    def consume(self, tokens: tuple[int, ...]) -> None:
        """Consumes tokens."""
        started = self._clock()
        self._matcher.consume_tokens(list(tokens))
        self._check()
        self.consumed += len(tokens)
        self._used_s += self._clock() - started

    def move(self) -> NextTokens:
        """Returns the allowed next tokens.

        Raises:
            InvalidRequest: No token is allowed and the text is not complete, or the grammar exceeded its limits.
        """
        started = self._clock()
        move = self._move()
        self._used_s += self._clock() - started
        if self._used_s > FIRST_ALLOWANCE_S + TOKEN_ALLOWANCE_S * self.consumed:
            raise InvalidRequest(self._rules.field, "takes too much time to enforce; use a simpler one")
        return move

    def _move(self) -> NextTokens:
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
    """State of a formatted answer. Made by ``GrammarCompiler``. For one thread at a time.

    Attributes:
        move: The allowed next tokens.
    """

    matcher: GrammarMatcher
    consumed: int
    move: NextTokens

    def next(self) -> NextTokens:
        """Returns the allowed tokens, the only remaining run, or the end; end tokens if the text may end."""
        return self.move

    def after(self, tokens: tuple[int, ...]) -> Grammar:
        """Returns the state after tokens."""
        if not tokens:
            return self
        matcher = self.matcher if self.matcher.consumed == self.consumed else self.matcher.fork(self.consumed)
        matcher.consume(tokens)
        return Grammar(matcher, matcher.consumed, matcher.move())


def short_reason(error: str) -> str:
    """Returns the cause in llguidance's message, without dumps of its state."""
    if cause := re.search(r"^error: (.+)$", error, re.MULTILINE):
        return cause[1]
    lines = error.replace("<non-verbose/>", "").strip().splitlines() or ["unknown reason"]
    return _NO_TEXT if lines[0] == "NoExtensionBias" else lines[0][:_MAX_REASON]


_JSON: Final[JsonCompileOptions] = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "coerce_one_of": False,
    "lenient": False,
}
"""Overrides a schema's ``x-guidance``. Flexible white space would let a model generate white space for ever."""

COMPILER_LIMITS: Final = LLParserLimits(
    max_items_in_row=500,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=50_000,
    step_max_items=5_000,
    max_lexer_states=20_000,
    max_grammar_size=10_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
"""Limit a request's slowest mask to tens of milliseconds, its compilation to hundreds of milliseconds and its memory to
tens of MiB; llguidance's defaults allow seconds and half a GiB. A schema of 20 objects with 10 fields each, every one a
string, a list, an enumeration or null, uses less than half of each.
"""


class GrammarCompiler:
    """Compiles formats for one model. Any thread.

    Args:
        encode: Encodes text with that tokenizer, special tokens read as plain text.
        vocabulary_size: Number of logits; may be larger than the tokenizer's vocabulary.
        budget: Bounds the memory of compiled formats; None for one of its own.
    """

    def __init__(
        self,
        definition: str,
        encode: Callable[[str], list[int]],
        vocabulary_size: int,
        end_tokens: frozenset[int],
        budget: GrammarBudget | None = None,
    ) -> None:
        try:
            plain = LLTokenizer(definition, n_vocab=vocabulary_size, eos_token=sorted(end_tokens), slices=[])
            vocabulary = TokenizerWrapper(_Vocabulary(plain, encode))
            self._tokenizer = LLTokenizer(vocabulary, n_vocab=plain.vocab_size, eos_token=sorted(end_tokens))
        except ValueError as error:
            raise ModelFolderInvalid(f"tokenizer.json: {error}") from error
        self._vocabulary_size = vocabulary_size
        self._end_tokens = end_tokens
        self._budget = budget or GrammarBudget()

    def compile(self, form: AnswerFormat, client: str = "") -> Grammar:
        """Returns the constraint of a format."""
        grammar = grammar_text(form)
        field = "json_schema" if isinstance(form, JsonSchema) else "regex"
        rules = GrammarRules(field, self._end_tokens, self._vocabulary_size)
        claim = _Claim()
        self._budget.hold(client, _memory_bytes(form), claim)
        compiled = LLMatcher(self._tokenizer, grammar, log_level=0, limits=COMPILER_LIMITS)
        matcher = GrammarMatcher(compiled, rules, claim=claim)
        return Grammar(matcher, 0, matcher.move())


class _Claim:
    """Memory of a budget, held as long as a matcher or a copy of it exists."""


class _Vocabulary:
    """A tokenizer in llguidance's interface.

    llguidance's own parser of ``tokenizer.json`` reads the text of a special token in a grammar as the token.
    """

    def __init__(self, plain: LLTokenizer, encode: Callable[[str], list[int]]) -> None:
        ids = range(plain.vocab_size)
        self.tokens = [plain.decode_bytes([token]) for token in ids]
        self.special_token_ids = [token for token in ids if plain.is_special_token(token)]
        self.eos_token_id = plain.eos_token
        self.bos_token_id = None
        self._encode = encode

    def __call__(self, text: bytes) -> list[int]:
        return self._encode(text.decode("utf-8"))


def grammar_text(form: AnswerFormat) -> str:
    return _schema_grammar(form.schema) if isinstance(form, JsonSchema) else _regex_grammar(form.pattern)


def _schema_grammar(schema: str) -> str:
    # Parsed first because llguidance inserts the text into a larger JSON text unchecked.
    try:
        parsed = json.loads(schema, parse_constant=_refuse)
    except RecursionError:
        raise InvalidRequest("json_schema", "is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest("json_schema", f"is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("json_schema", "must be an object; {} allows any JSON")
    _check_schema(parsed)
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(parsed), overrides=_JSON)
    except ValueError as error:
        raise InvalidRequest("json_schema", short_reason(str(error))) from error


def _check_schema(schema: Mapping[str, object]) -> None:
    size = _size_of_schema(schema)
    if size.shortest > LONGEST_FORCED:
        raise InvalidRequest(
            "json_schema",
            f"asks for a string of up to {size.shortest:,} bytes in one piece, at most {LONGEST_FORCED:,} are "
            "possible; lower minLength or the counts in patterns (those of several patterns for one string multiply), "
            "or shorten const and enum",
        )
    if size.multiple > LARGEST_MULTIPLE:
        raise InvalidRequest(
            "json_schema",
            f"multipleOf, or several for one number together, is {size.multiple:,}; at most {LARGEST_MULTIPLE:,} is "
            "possible",
        )


def _regex_grammar(pattern: str) -> str:
    # llguidance silently misinterprets both.
    if "\n" in pattern:
        raise InvalidRequest("regex", r"must be one line; \n stands for a newline")
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise InvalidRequest("regex", "ends in the middle of an escape")
    shortest = _size_of_regex(pattern).shortest
    if shortest > LONGEST_FORCED:
        raise InvalidRequest(
            "regex",
            f"asks for a text of up to {shortest:,} bytes in one piece, at most {LONGEST_FORCED:,} are possible; lower "
            "the counts in braces: those of nested groups multiply",
        )
    return LLMatcher.grammar_from_regex(pattern)


def _size_of_schema(schema: Mapping[str, object]) -> SchemaSize:
    try:
        return schema_size(schema)
    except ValueError as error:
        raise InvalidRequest("json_schema", str(error)) from error


def _size_of_regex(pattern: str) -> RegexSize:
    try:
        return regex_size(pattern)
    except ValueError as error:
        raise InvalidRequest("regex", str(error)) from error


def _memory_bytes(form: AnswerFormat) -> int:
    if isinstance(form, JsonSchema):
        text, forced = form.schema, _size_of_schema(json.loads(form.schema)).shortest
    else:
        text, forced = form.pattern, _size_of_regex(form.pattern).shortest
    return _BYTES_A_GRAMMAR + _BYTES_A_CHARACTER * len(text) + _BYTES_A_FORCED_BYTE * forced


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
