"""From formats to grammars over a model's tokens, with limits that a hostile format meets before the engine does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from edge_rag.core.query import AnswerFormat, JsonSchema
from edge_rag.errors import InvalidRequest, ModelFolderInvalid
from edge_rag.generator.constraints.grammar import Grammar, GrammarMatcher, GrammarRules, short_reason

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_JSON: Final[JsonCompileOptions] = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "coerce_one_of": False,
    "lenient": False,
}
"""Overrides what a schema says of itself under ``x-guidance``. Free white space would let a model write it for ever."""

_LIMITS: Final = LLParserLimits(
    max_items_in_row=500,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=50_000,
    step_max_items=5_000,
    max_lexer_states=20_000,
    max_grammar_size=10_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
"""Hold a request's worst mask to tens of milliseconds, its compilation to hundreds and its memory to tens of MiB, where
llguidance's own limits allow seconds and half a GiB. A schema of 20 objects with 10 fields each, every one of them a
string, a list, an enumeration or null, stays below half of each.
"""


class GrammarCompiler:
    """Compiles formats for one model. Any thread.

    Args:
        definition: Content of the model's ``tokenizer.json``.
        encode: Encodes text with that tokenizer, special tokens read as plain text.
        vocabulary_size: Number of logits; may be larger than the tokenizer's vocabulary.
        end_tokens: Tokens with which the model ends its turn.

    Raises:
        ModelFolderInvalid: The tokenizer is of a kind that grammars cannot be matched to.
    """

    def __init__(
        self, definition: str, encode: Callable[[str], list[int]], vocabulary_size: int, end_tokens: frozenset[int]
    ) -> None:
        try:
            plain = LLTokenizer(definition, n_vocab=vocabulary_size, eos_token=sorted(end_tokens), slices=[])
            vocabulary = TokenizerWrapper(_Vocabulary(plain, encode))
            self._tokenizer = LLTokenizer(vocabulary, n_vocab=plain.vocab_size, eos_token=sorted(end_tokens))
        except ValueError as error:
            raise ModelFolderInvalid(f"tokenizer.json: {error}") from error
        self._vocabulary_size = vocabulary_size
        self._end_tokens = end_tokens

    def compile(self, wanted: AnswerFormat) -> Grammar:
        """Returns the constraint that holds an answer to a format.

        Raises:
            InvalidRequest: The format cannot be enforced; names the field and the reason.
        """
        if isinstance(wanted, JsonSchema):
            field, grammar = "json_schema", _schema_grammar(wanted.schema)
        else:
            field, grammar = "regex", _regex_grammar(wanted.pattern)
        rules = GrammarRules(field, self._end_tokens, self._vocabulary_size)
        matcher = GrammarMatcher(LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS), rules)
        return Grammar(matcher, 0, matcher.move())


class _Vocabulary:
    """A tokenizer in the form that llguidance asks for.

    llguidance's own reading of ``tokenizer.json`` takes the text of a special token in a grammar for the token itself.
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


def _schema_grammar(schema: str) -> str:
    # Parsed here because llguidance puts the text into a larger JSON text as it is.
    try:
        parsed = json.loads(schema, parse_constant=_refuse)
    except RecursionError:
        raise InvalidRequest("json_schema", "is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest("json_schema", f"is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("json_schema", "must be an object; {} allows any JSON")
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(parsed), overrides=_JSON)
    except ValueError as error:
        raise InvalidRequest("json_schema", short_reason(str(error))) from error


def _regex_grammar(pattern: str) -> str:
    # llguidance takes both silently for something else.
    if "\n" in pattern:
        raise InvalidRequest("regex", r"must be one line; \n stands for a newline")
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise InvalidRequest("regex", "ends in the middle of an escape")
    return LLMatcher.grammar_from_regex(pattern)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
