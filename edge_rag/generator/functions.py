"""Functions of a caller that the language model may ask to be called; pure.

Any instruct model can do so, even without training for it: the system message describes the functions, and the answer
is JSON of a schema that names either a function with legal arguments or none with an answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from edge_rag.core.generation import CompletionRequest, Conversation, Function, FunctionCall
from edge_rag.core.query import JsonSchema

_NONE: Final = "none"
_INTRODUCTION: Final = "Available functions:"
_RULES: Final = (
    "First name the function that the user's request needs, or none. Do not guess what a function can find out.\n"
    'Format: {"function": "NAME", "arguments": {...}} or {"function": "none", "answer": "..."}'
)


def with_functions(request: CompletionRequest) -> CompletionRequest:
    conversation, functions = request.conversation, request.functions
    parts = [conversation.system, instructions(functions)]
    system = "\n\n".join(part for part in parts if part)
    form = answer_format(functions, request.must_call)
    return replace(request, conversation=Conversation(system, conversation.turns), format=form)


def instructions(functions: Sequence[Function]) -> str:
    """Returns the text that describes its functions to a model."""
    described = [
        json.dumps(
            {"name": each.name, "description": each.description, "parameters": json.loads(each.parameters)},
            ensure_ascii=False,
        )
        for each in functions
    ]
    return "\n".join([_INTRODUCTION, *described, _RULES])


def answer_format(functions: Sequence[Function], must_call: bool) -> JsonSchema:
    """Returns the format of an answer that calls one of the functions, or is a text unless it must call one."""
    forms = [_object(function={"const": each.name}, arguments=json.loads(each.parameters)) for each in functions]
    if not must_call:
        forms.append(_object(function={"const": _NONE}, answer={"type": "string"}))
    return JsonSchema(json.dumps({"anyOf": forms}, ensure_ascii=False))


def call_text(call: FunctionCall) -> str:
    return json.dumps({"function": call.name, "arguments": json.loads(call.arguments)}, ensure_ascii=False)


def result_text(name: str, output: str) -> str:
    return f"Result of {name}: {output}"


def read_answer(text: str) -> FunctionCall | str:
    """Returns the call or the text of an answer; an empty text if it was cut."""
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    if "arguments" in value:
        return FunctionCall(value["function"], json.dumps(value["arguments"], ensure_ascii=False))
    answer: str = value["answer"]
    return answer


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
