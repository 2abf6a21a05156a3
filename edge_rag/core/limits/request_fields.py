"""Bounds and checks of the fields of a request over any transport.

``parse_*`` and ``checked_*`` return legal values and refuse others by the name that the caller knows a field by.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.documents.jobs import JobId
from edge_rag.core.ids import RequestId, is_model_name, is_request_id
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Regex, Sampling, Turn, TurnSource
from edge_rag.errors import InvalidRequest

DEFAULT_COLLECTION: Final = "default"

MAX_FORMAT_CHARACTERS: Final = 65_536
"""Most characters of a JSON schema or a regular expression."""

MAX_SENTENCES: Final = 8
"""Most sentences of an answer in mode quote."""

MAX_HITS: Final = 100
"""Most hits of a search."""

MAX_SEED: Final = (1 << 64) - 1
MAX_TOP_K: Final = (1 << 31) - 1

MAX_PASSAGES: Final = 32
"""Most passages in a prompt."""

MAX_NAME_CHARACTERS: Final = 64
"""Most characters of a collection's name."""

MAX_TITLE_CHARACTERS: Final = 256
"""Most characters of a collection's title."""

MAX_DESCRIPTION_CHARACTERS: Final = 4096
"""Most characters of a collection's description."""

MAX_LABELS: Final = 16
"""Most labels of a collection."""

MAX_LABEL_NAME_CHARACTERS: Final = 64
"""Most characters of a label's name."""

MAX_LABEL_CHARACTERS: Final = 512
"""Most characters of a label's text."""

MAX_TOKENS: Final = 8192
"""Most tokens of an answer."""

MAX_CONVERSATION_CHARACTERS: Final = 262_144
"""Most characters of all messages of a conversation; far more than a small model reads."""

MAX_TURNS: Final = 8
"""Most earlier turns of a question."""

MAX_TURN_SOURCES: Final = 32
"""Most sources of a turn."""

MAX_TURN_HEADINGS: Final = 64
"""Most headings above a source of a turn."""

MAX_TURNS_CHARACTERS: Final = 131_072
"""Most characters of all turns of a question: questions, answers and sources together."""

TURNS_LEFT_OUT_AT_ONCE: Final = 4
"""Of a conversation that is too long, so many turns are left out at its beginning at a time: between two such steps,
prompts begin with the same turns, and their KV is reused."""

_MAX_STOP_TEXTS: Final = 8
_MAX_STOP_CHARACTERS: Final = 128
_JOB_ID = re.compile(r"[0-9a-f]{1,64}")
_COLLECTION = re.compile(rf"[a-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds and defaults of a request."""

    question_characters: int
    default_mode: AnswerMode
    default_passages: int


def parse_request_id(value: str, field: str = "request_id") -> RequestId:
    """Returns the id of a request."""
    if not is_request_id(value):
        raise InvalidRequest(field, "must be 1 to 128 printable ASCII characters without spaces")
    return RequestId(value)


def parse_model_name(value: str, field: str = "name") -> str:
    """Returns the name of a model.

    Raises:
        InvalidRequest: It is not a legal name.
    """
    if not is_model_name(value):
        raise InvalidRequest(field, "must be 1 to 64 of a-z, 0-9, ., _ and -, beginning with a letter or digit")
    return value


def parse_collection(value: str) -> str:
    """Returns a collection's name; ``default`` if it is empty."""
    return parse_collection_name(value, "collection") if value else DEFAULT_COLLECTION


def parse_collection_name(value: str, field: str = "name") -> str:
    """Returns a collection's name, which is required."""
    if not _COLLECTION.fullmatch(value):
        raise InvalidRequest(field, "must be 1 to 64 characters of a-z, 0-9, - and _")
    return value


def name_of_title(title: str) -> str:
    """Returns a legal name of a collection that resembles a title: its letters without marks, in lower case.

    A legal name is returned as it is. Empty if no letter or digit of the title can be in a name.
    """
    if _COLLECTION.fullmatch(title):
        return title
    plain = unicodedata.normalize("NFKD", title).lower().encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9_]+", "-", plain).strip("-")[:MAX_NAME_CHARACTERS]


def parse_title(field: str, value: str) -> str:
    """Returns a collection's title, which may be empty."""
    return _plain(field, value.strip(), MAX_TITLE_CHARACTERS)


def parse_description(field: str, value: str) -> str:
    """Returns a collection's description, which may be empty."""
    text = value.strip()
    if len(text) > MAX_DESCRIPTION_CHARACTERS or "\x00" in text:
        raise InvalidRequest(field, f"must be at most {MAX_DESCRIPTION_CHARACTERS:,} characters, without NUL")
    return text


def parse_labels(field: str, value: Mapping[str, str]) -> dict[str, str]:
    """Returns a collection's labels, in order of their names."""
    if len(value) > MAX_LABELS:
        raise InvalidRequest(field, f"has {len(value):,} names, at most {MAX_LABELS} are allowed")
    for name, text in value.items():
        if not _plain(field, name, MAX_LABEL_NAME_CHARACTERS):
            raise InvalidRequest(field, "must not have an empty name")
        _plain(f"{field}[{name!r}]", text, MAX_LABEL_CHARACTERS)
    return dict(sorted(value.items()))


def parse_chunk_tokens(field: str, value: int) -> int:
    """Returns the size that a collection's chunks are packed to, tokens."""
    return bounded_int(field, value, 16, 8192)


def _plain(field: str, text: str, most: int) -> str:
    if len(text) > most:
        raise InvalidRequest(field, f"has {len(text):,} characters, at most {most:,} are allowed")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InvalidRequest(field, "must not hold control characters")
    return text


def parse_document_name(field: str, value: str) -> str:
    """Returns a document's name or id."""
    if not 1 <= len(value) <= 1024:
        raise InvalidRequest(field, f"must be 1 to 1,024 characters, has {len(value):,}")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidRequest(field, "must not hold control characters")
    return value


def parse_job_id(value: str, field: str = "job_id") -> JobId:
    """Returns a job's id."""
    if not _JOB_ID.fullmatch(value):
        raise InvalidRequest(field, "must be the id of a job, as its start and the list of jobs tell it")
    return JobId(value)


def parse_text(field: str, value: str, most: int) -> str:
    """Returns a text without the white space around it."""
    text = value.strip()
    if not text:
        raise InvalidRequest(field, "must not be empty")
    if len(text) > most:
        raise InvalidRequest(field, f"has {len(text):,} characters, at most {most:,} are allowed")
    if "\x00" in text:
        raise InvalidRequest(field, "must not hold NUL characters")
    return text


def checked_turns(field: str, turns: Sequence[Turn], question_characters: int) -> tuple[Turn, ...]:
    """Returns the earlier turns of a question, oldest first."""
    if len(turns) > MAX_TURNS:
        raise InvalidRequest(field, f"has {len(turns):,} turns, at most {MAX_TURNS} are allowed; leave out the oldest")
    checked: list[Turn] = []
    for number, turn in enumerate(turns):
        place = f"{field}[{number}]"
        if len(turn.sources) > MAX_TURN_SOURCES:
            raise InvalidRequest(
                f"{place}.sources", f"has {len(turn.sources):,}, at most {MAX_TURN_SOURCES} are allowed"
            )
        for index, source in enumerate(turn.sources):
            if len(source.section) > MAX_TURN_HEADINGS:
                raise InvalidRequest(
                    f"{place}.sources[{index}].section",
                    f"has {len(source.section):,} headings, at most {MAX_TURN_HEADINGS} are allowed",
                )
        checked.append(replace(turn, question=parse_text(f"{place}.question", turn.question, question_characters)))
    texts = [text for turn in checked for text in turn.texts()]
    if any("\x00" in text for text in texts):
        raise InvalidRequest(field, "must not hold NUL characters")
    characters = sum(map(len, texts))
    if characters > MAX_TURNS_CHARACTERS:
        raise InvalidRequest(
            field,
            f"has {characters:,} characters, at most {MAX_TURNS_CHARACTERS:,} are allowed; leave out the oldest",
        )
    return tuple(checked)


def newest_turns(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Returns the newest turns of a conversation that a question can carry, oldest first; the newest one always.

    Of too many turns, the oldest are left out in steps of ``TURNS_LEFT_OUT_AT_ONCE``; of too long ones, as few as
    possible. Of a turn that is too long by itself, sources are left out, and the end of the answer.
    """
    steps = -(-max(0, len(turns) - MAX_TURNS) // TURNS_LEFT_OUT_AT_ONCE)
    kept = [*map(_cut, turns[steps * TURNS_LEFT_OUT_AT_ONCE :])]
    while sum(len(text) for turn in kept for text in turn.texts()) > MAX_TURNS_CHARACTERS:
        del kept[0]
    return tuple(kept)


def _cut(turn: Turn) -> Turn:
    """Returns a turn that is within the bounds of one."""
    question = turn.question.replace("\x00", "")[:MAX_TURNS_CHARACTERS]
    answer = turn.answer.replace("\x00", "")[: MAX_TURNS_CHARACTERS - len(question)]
    left = MAX_TURNS_CHARACTERS - len(question) - len(answer)
    sources: list[TurnSource] = []
    for source in turn.sources[:MAX_TURN_SOURCES]:
        text, section = source.text.replace("\x00", ""), source.section[-MAX_TURN_HEADINGS:]
        left -= len(source.document) + len(text) + sum(map(len, section))
        if left < 0:
            break
        sources.append(TurnSource(source.document, section, text))
    return Turn(question, answer, tuple(sources))


def bounded_int(field: str, value: int, least: int, most: int) -> int:
    """Returns the number."""
    if not least <= value <= most:
        raise InvalidRequest(field, f"must be {least:,} to {most:,}, is {value:,}")
    return value


def bounded_float(field: str, value: float, least: float, most: float) -> float:
    """Returns the number."""
    if not least <= value <= most:
        raise InvalidRequest(field, f"must be {least:g} to {most:g}, is {value:g}")
    return value


def checked_sampling(value: Sampling, prefix: str = "") -> Sampling:
    """Returns the sampling parameters."""
    if len(value.stop) > _MAX_STOP_TEXTS:
        raise InvalidRequest(f"{prefix}stop", f"at most {_MAX_STOP_TEXTS} texts, has {len(value.stop)}")
    for text in value.stop:
        if not 1 <= len(text) <= _MAX_STOP_CHARACTERS:
            raise InvalidRequest(f"{prefix}stop", f"each text must be 1 to {_MAX_STOP_CHARACTERS} characters")
    bounded_int(f"{prefix}max_tokens", value.max_tokens, 1, MAX_TOKENS)
    bounded_float(f"{prefix}temperature", value.temperature, 0.0, 2.0)
    if value.top_p <= 0:
        raise InvalidRequest(f"{prefix}top_p", "must be greater than 0")
    bounded_float(f"{prefix}top_p", value.top_p, 0.0, 1.0)
    bounded_float(f"{prefix}repetition_penalty", value.repetition_penalty, 1.0, 10.0)
    bounded_int(f"{prefix}top_k", value.top_k, 0, MAX_TOP_K)
    if value.seed is not None:
        bounded_int(f"{prefix}seed", value.seed, 0, MAX_SEED)
    return value


def check_format(field: str, value: AnswerFormat, mode: AnswerMode, stop_field: str | None) -> None:
    """Checks that the format of an answer can be used with its mode.

    Args:
        stop_field: Name of the field with stop texts; None if there are none.
    """
    if mode is AnswerMode.EXTRACT and isinstance(value, Regex):
        raise InvalidRequest(field, "needs mode free; in mode extract use a JSON schema with a pattern")
    if mode is AnswerMode.QUOTE:
        raise InvalidRequest(field, "needs mode free; in mode quote the documents' sentences are the format")
    if mode is AnswerMode.CITE:
        raise InvalidRequest(field, "needs mode free; in mode cite an answer is sentences that documents support")
    if stop_field is not None:
        raise InvalidRequest(stop_field, f"would cut the answer short of what {field} asks for; leave one out")
    characters = len(value.schema if isinstance(value, JsonSchema) else value.pattern)
    if not 1 <= characters <= MAX_FORMAT_CHARACTERS:
        raise InvalidRequest(field, f"must be 1 to {MAX_FORMAT_CHARACTERS:,} characters, has {characters:,}")
