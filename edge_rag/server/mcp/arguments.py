"""Checks arguments of tools against their schemas; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edge_rag.errors import InvalidRequest
from edge_rag.server.http.fields import chosen, typed_value


def checked(name: str, schema: Mapping[str, Any], value: object) -> Any:
    """Returns an argument's value, or its default where there is none.

    Args:
        schema: Its schema: of an integer, of a string, or of an array of objects whose properties are such.
        value: The given value; None for none.
    """
    if value is None:
        if "default" not in schema:
            raise InvalidRequest(name, "is missing")
        return schema["default"]
    if schema["type"] == "integer":
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of numbers
        least, most = schema["minimum"], schema["maximum"]
        if type(value) is not int or not least <= value <= most:
            raise InvalidRequest(name, f"must be an integer from {least:,} to {most:,}")
        return value
    if schema["type"] == "array":
        return _checked_objects(name, schema["items"]["properties"], value)
    value = typed_value(str, value, name)
    if "enum" in schema:
        chosen(dict.fromkeys(schema["enum"]), value, name)
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise InvalidRequest(name, f"must match {schema['pattern']}")
    if len(value) < schema.get("minLength", 0):
        raise InvalidRequest(name, "must not be empty")
    if len(value) > schema.get("maxLength", len(value)):
        raise InvalidRequest(name, f"has {len(value):,} characters, at most {schema['maxLength']:,} are allowed")
    return value


def _checked_objects(name: str, properties: Mapping[str, Mapping[str, Any]], value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidRequest(name, "must be an array of objects")
    for number, each in enumerate(value):
        for key in each:
            if key not in properties:
                raise InvalidRequest(f"{name}[{number}].{key[:256]}", f"is none of {', '.join(properties)}")
    return [
        {key: checked(f"{name}[{number}].{key}", schema, each.get(key)) for key, schema in properties.items()}
        for number, each in enumerate(value)
    ]
