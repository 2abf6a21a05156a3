"""Fields that chat completions and responses have in common: of a question, and of a conversation.

A value that the box cannot honour is refused by the name of its field, unless it is the field's neutral
value.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from edge_rag.core.documents.filters import Filter
from edge_rag.core.generation import CompletionRequest, Conversation
from edge_rag.core.limits.asker import Asker, QueryFields
from edge_rag.core.limits.request_fields import (
    MAX_CONVERSATION_CHARACTERS,
    bounded_int,
    check_format,
    checked_sampling,
    newest_turns,
)
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Query, Sampling, Turn
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.fields import check_names, choice, typed
from edge_rag.server.http.openai.filters import parse_filters
from edge_rag.server.http.openai.functions import parse_functions
from edge_rag.server.http.openai.models import collection_of

EXTENSION: Final = "edge_rag"
"""Field of requests and responses with what OpenAI's API has no field for."""

UNREAD: Final = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
"""Fields that change no answer here."""

_READ_EXTENSION: Final = frozenset({"mode", "max_sentences", "passages", "priority", "filter", "sources"})
_SYSTEM_ROLES: Final = ("system", "developer")
_ROLES: Final = (*_SYSTEM_ROLES, "user", "assistant")
_MOST_MESSAGES: Final = 4096


def parse_model(body: Mapping[str, Any]) -> str:
    """Returns the name of the model."""
    model = typed(body, "model", str)
    if model is None:
        raise InvalidRequest("model", "is missing")
    return model


def last_question(messages: object, field: str, text_types: Collection[str]) -> str:
    checked = _messages(messages, field)
    last = len(checked) - 1
    return text_of(f"{field}[{last}].content", checked[last].get("content"), text_types)


def _earlier_turns(wanted: Wanted, question_characters: int) -> tuple[Turn, ...]:
    """Returns the turns that precede the last message, oldest first.

    Clients send a conversation from its beginning, so ``newest_turns`` of it are taken.
    Messages of one role that follow each other are one. System messages, and parts that are no text, are not read.
    """
    found: list[Turn] = []
    for message in _messages(wanted.messages, wanted.field)[:-1]:
        role, text = message["role"], _readable(message.get("content"), wanted.text_types)
        if role == "user" and found and not found[-1].answer:
            found[-1] = replace(found[-1], question=f"{found[-1].question}\n\n{text}".strip())
        elif role == "user":
            found.append(Turn(text))
        elif role == "assistant" and found:
            found[-1] = replace(found[-1], answer=f"{found[-1].answer}\n\n{text}".strip())
    asked = (replace(turn, question=turn.question.strip()) for turn in found)
    return newest_turns([turn for turn in asked if 1 <= len(turn.question) <= question_characters])


def _readable(content: object, text_types: Collection[str]) -> str:
    try:
        return text_of("content", content, text_types).replace("\x00", "")
    except InvalidRequest:
        return ""


def _parse_conversation(wanted: Wanted) -> Conversation:
    """Returns the conversation that the messages are; those of one role that follow each other are one."""
    field = wanted.field
    first = [wanted.instructions] if wanted.instructions else []
    turns: list[list[str]] = []
    for index, message in enumerate(_messages(wanted.messages, field)):
        place = f"{field}[{index}]"
        text = text_of(f"{place}.content", message.get("content"), wanted.text_types)
        role = message["role"]
        if role in _SYSTEM_ROLES:
            if turns:
                raise InvalidRequest(f"{place}.role", "must be user or assistant: system messages come first")
            first.append(text)
        elif turns and bool(len(turns) % 2) == (role == "user"):
            turns[-1].append(text)
        elif turns or role == "user":
            turns.append([text])
        else:
            raise InvalidRequest(f"{place}.role", "must be user: a conversation begins with the user")
    conversation = Conversation("\n\n".join(first), tuple("\n\n".join(turn) for turn in turns))
    characters = len(conversation.system) + sum(map(len, conversation.turns))
    if characters > MAX_CONVERSATION_CHARACTERS:
        raise InvalidRequest(
            field, f"has {characters:,} characters, at most {MAX_CONVERSATION_CHARACTERS:,} are allowed"
        )
    return conversation


def _messages(messages: object, field: str) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest(field, "must be an array of at least one message")
    bounded_int(field, len(messages), 1, _MOST_MESSAGES)
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise InvalidRequest(f"{field}[{index}].role", f"must be one of {', '.join(_ROLES)}")
    if messages[-1]["role"] != "user":
        raise InvalidRequest(f"{field}[{len(messages) - 1}].role", "must be user: the last message is the question")
    return messages


def text_of(field: str, value: object, text_types: Collection[str]) -> str:
    """Returns the text of a message's content."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InvalidRequest(field, "must be a string or an array of parts")
    texts: list[str] = []
    for index, part in enumerate(value):
        text = part.get("text") if isinstance(part, dict) and part.get("type") in text_types else None
        if not isinstance(text, str):
            kinds = " or ".join(text_types)
            raise InvalidRequest(f"{field}[{index}]", f"must be a part of type {kinds}; others are not supported")
        texts.append(text)
    return "\n".join(texts)


def parse_sampling(body: Mapping[str, Any], max_tokens: int | None) -> Sampling:
    """Returns how tokens are chosen.

    Args:
        max_tokens: Most tokens of the answer, whose field each interface names otherwise; None for the default.
    """
    named = {
        "max_tokens": max_tokens,
        "temperature": typed(body, "temperature", float),
        "top_p": typed(body, "top_p", float),
        "top_k": typed(body, "top_k", int),
        "repetition_penalty": typed(body, "repetition_penalty", float),
        "seed": typed(body, "seed", int),
    }
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    return checked_sampling(replace(Sampling(), stop=_stop(body), **given))


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    texts = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("stop", "must be a string or an array of strings")
    return tuple(texts)


def parse_format(wanted: Mapping[str, Any] | None, name: str, schema_in: str = "") -> AnswerFormat | None:
    """Returns the format of an answer; None for any text.

    Args:
        schema_in: Name of the object within that holds the schema; empty if it is a field of ``wanted``.
    """
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_object":
        return JsonSchema('{"type":"object"}')
    if wanted.get("type") != "json_schema":
        raise InvalidRequest(f"{name}.type", "must be text, json_object or json_schema")
    holder = (typed(wanted, schema_in, dict, name) or {}) if schema_in else wanted
    where = f"{name}.{schema_in}" if schema_in else name
    schema = typed(holder, "schema", dict, where)
    if schema is None:
        raise InvalidRequest(f"{where}.schema", "is missing")
    return JsonSchema(json.dumps(schema, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content of a request, in core values where both interfaces have the same.

    Attributes:
        messages: The conversation; the last message is the question.
        field: Name of their field in errors.
        text_types: Types of parts of a message that are text.
        sampling: How tokens are chosen.
        format: Format of the answer; None for any text.
        format_field: Name of its field in errors.
        function_in: Name of the object of a tool that describes a function; empty if the tool does.
        instructions: What precedes a conversation with the language model.
        passages: Most passages in the prompt; None for the default. The extension's takes precedence.
        filter: Which passages may be used; None for the extension's.
    """

    model: str
    messages: object
    field: str
    text_types: Collection[str]
    sampling: Sampling
    format: AnswerFormat | None
    format_field: str
    function_in: str = ""
    instructions: str = ""
    passages: int | None = None
    filter: Filter | None = None


def parse_wanted(body: Mapping[str, Any], wanted: Wanted, asker: Asker, *, alone: bool) -> Query | CompletionRequest:
    """Returns the query to the collection that a model stands for, or with ``alone`` to the language model."""
    extension = typed(body, EXTENSION, dict) or {}
    if alone:
        return _parse_completion(body, extension, wanted, asker)
    check_names(extension, _READ_EXTENSION, EXTENSION)
    passages = typed(extension, "passages", int, EXTENSION)
    return asker.query(
        last_question(wanted.messages, wanted.field, wanted.text_types),
        collection_of(wanted.model),
        mode=choice(extension, "mode", {each.value: each for each in AnswerMode}, EXTENSION),
        max_sentences=typed(extension, "max_sentences", int, EXTENSION),
        passages=wanted.passages if passages is None else passages,
        sampling=wanted.sampling,
        priority=_priority(extension),
        form=wanted.format,
        allow_truncated=True,  # OpenAI's protocol reports it in ``finish_reason``
        condition=_filter(extension, wanted),
        turns=_earlier_turns(wanted, asker.limits.question_characters),
        fields=QueryFields(wanted.field, wanted.format_field, "stop", f"{EXTENSION}."),
    )


def _filter(extension: Mapping[str, Any], wanted: Wanted) -> Filter | None:
    found = parse_filters(extension.get("filter"), f"{EXTENSION}.filter")
    if found is not None and wanted.filter is not None:
        raise InvalidRequest(f"{EXTENSION}.filter", "is given by the tool, too; leave one out")
    return wanted.filter if found is None else found


def _parse_completion(
    body: Mapping[str, Any], extension: Mapping[str, Any], wanted: Wanted, asker: Asker
) -> CompletionRequest:
    functions, must_call = parse_functions(body, wanted.function_in)
    conversation = _parse_conversation(wanted)
    check_names(extension, frozenset({"priority"}), EXTENSION)
    if wanted.format is not None:
        stop = "stop" if wanted.sampling.stop else None
        check_format(wanted.format_field, wanted.format, AnswerMode.FREE, stop)
    if functions and wanted.format is not None:
        raise InvalidRequest(wanted.format_field, "does not go with tools; leave one out")
    if functions and wanted.sampling.stop:
        raise InvalidRequest("stop", "does not go with tools; leave one out")
    return CompletionRequest(
        request_id=asker.request_id,
        conversation=conversation,
        sampling=wanted.sampling,
        priority=asker.identity.capped_priority(_priority(extension)),
        client=asker.identity.name,
        deadline=asker.deadline,
        format=wanted.format,
        functions=functions,
        must_call=must_call,
    )


def _priority(extension: Mapping[str, Any]) -> Priority:
    wanted = choice(extension, "priority", {each.name.lower(): each for each in Priority}, EXTENSION)
    return Priority.INTERACTIVE if wanted is None else wanted
