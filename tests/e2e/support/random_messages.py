"""Random protobuf messages of any type, hostile values among them."""

import random
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_TEXTS = (
    "",
    " ",
    "default",
    "x" * 300,
    "\0",
    "\u202etxt.exe",
    "é́" * 40,
    "../../etc/passwd",
    "' OR 1=1 --",
    'NEAR("a" "b", 3) OR *',
    "{{ 7 * 7 }}",
    "</s><|im_end|>",
    "(" * 200,
    "2026-13-99",
    "\U0010ffff",
    "🜁" * 20,
    "-1",
)
_DEEPEST = 6


def random_request(service: str, method: str, chance: random.Random) -> Message:
    described = descriptor_pool.Default().FindServiceByName(f"edge_rag.v1.{service}").methods_by_name[method]
    return _message(message_factory.GetMessageClass(described.input_type)(), chance, 0)


def _message(message: Message, chance: random.Random, depth: int) -> Message:
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.4 or depth > _DEEPEST:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), field.message_type, chance, depth)
        elif field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(chance.choice((1, 2, 40))):
                if field.message_type is None:
                    values.append(_value(field, chance))
                else:
                    _message(values.add(), chance, depth + 1)
        elif field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            _message(part, chance, depth + 1)
        else:
            setattr(message, field.name, _value(field, chance))
    return message


def _fill_map(values: Any, entry: Any, chance: random.Random, depth: int) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for _ in range(chance.choice((1, 3))):
        if value.message_type is None:
            values[_value(key, chance)] = _value(value, chance)
        else:
            _message(values[_value(key, chance)], chance, depth + 1)


def _value(field: Any, chance: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = chance.choice(_TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return chance.choice((0.0, -1.0, 1e-30, 3e38, float("nan"), float("inf"), -float("inf"), 0.5))
        case FieldDescriptor.CPPTYPE_INT32:
            return chance.choice((0, 1, -1, 7, 2**31 - 1, -(2**31)))
        case FieldDescriptor.CPPTYPE_INT64:
            return chance.choice((0, 1, -1, 7, 2**63 - 1, -(2**63)))
        case FieldDescriptor.CPPTYPE_UINT32:
            return chance.choice((0, 1, 7, 2**32 - 1))
        case FieldDescriptor.CPPTYPE_UINT64:
            return chance.choice((0, 1, 7, 2**64 - 1))
        case _:
            # Enums of proto3 are open: numbers without a name travel, too.
            return chance.choice((0, 1, 2, 99, -5))
