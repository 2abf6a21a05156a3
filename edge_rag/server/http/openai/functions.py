"""Function tools of a request, their calls and results; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from edge_rag.core.generation import Function, FunctionCall
from edge_rag.errors import InvalidRequest
from edge_rag.generator.functions import call_text, result_text
from edge_rag.server.http.fields import check_names, typed

MAX_FUNCTIONS: Final = 64
"""Most functions of a request."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})
_NO_PARAMETERS: Final = '{"type":"object","properties":{},"additionalProperties":false}'


def parse_functions(body: Mapping[str, Any], within: str = "") -> tuple[tuple[Function, ...], bool]:
    """Returns the functions that the model may call, and whether it must call one.

    Args:
        within: Name of the object of a tool that describes the function; empty if the tool does.
    """
    tools = typed(body, "tools", list) or []
    if len(tools) > MAX_FUNCTIONS:
        raise InvalidRequest("tools", f"are at most {MAX_FUNCTIONS}, has {len(tools)}")
    functions = tuple(_function(tool, f"tools[{index}]", within) for index, tool in enumerate(tools))
    names = [each.name for each in functions]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidRequest(f"tools[{index}]", f"is a second function {name}")
    choice = body.get("tool_choice")
    if choice is None or choice == "auto":
        return functions, False
    if choice == "none":
        return (), False
    if choice == "required" and functions:
        return functions, True
    holder = choice.get(within) if within and isinstance(choice, dict) else choice
    named = holder.get("name") if isinstance(holder, dict) and choice.get("type") == "function" else None
    chosen = tuple(each for each in functions if each.name == named)
    if not chosen:
        raise InvalidRequest("tool_choice", "must be auto, none, required, or name one of the functions in tools")
    return chosen, True


def _function(tool: object, field: str, within: str) -> Function:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise InvalidRequest(f"{field}.type", "must be function; edge-rag/NAME searches documents")
    if within:
        check_names(tool, frozenset({"type", within}), field)
        described, field = typed(tool, within, dict, field) or {}, f"{field}.{within}"
    else:
        described = {name: value for name, value in tool.items() if name != "type"}
    check_names(described, _FIELDS, field)
    typed(described, "strict", bool, field)
    name = typed(described, "name", str, field) or ""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{field}.name", "must be 1 to 64 characters of A-Z, a-z, 0-9, - and _")
    parameters = typed(described, "parameters", dict, field)
    schema = _NO_PARAMETERS if parameters is None else json.dumps(parameters, ensure_ascii=False)
    return Function(name, typed(described, "description", str, field) or "", schema)


class EarlierCalls:
    """Earlier calls of functions, and their results, as messages of the model and of the user."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}

    def call(self, call: object, call_id: object, field: str) -> dict[str, str]:
        """Returns a call as a message; ``call`` has its name and arguments."""
        name = call.get("name") if isinstance(call, dict) else None
        arguments = call.get("arguments") if isinstance(call, dict) else None
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise InvalidRequest(field, "must have name and arguments, strings")
        self._names[str(call_id)] = name
        try:
            return {"role": "assistant", "content": call_text(FunctionCall(name, arguments))}
        except (ValueError, RecursionError):
            raise InvalidRequest(f"{field}.arguments", "must be JSON") from None

    def result(self, call_id: object, output: str, field: str) -> dict[str, str]:
        """Returns the result of an earlier call as a message."""
        if not isinstance(call_id, str) or call_id not in self._names:
            raise InvalidRequest(field, "must be the id of an earlier call")
        return {"role": "user", "content": result_text(self._names[call_id], output)}
