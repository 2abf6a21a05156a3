"""Converts dataclasses to protobuf messages and back, by the names of their fields.

A ``Codec`` pairs a dataclass with a message and derives the conversion of each field from its type and its name:

- A field has the same name on both sides. A time ends with ``_s`` in Python and with ``_seconds`` in the proto, a rate
  with ``_per_s`` and ``_per_second``. The few other differences are listed in ``names``.
- An enum member and its proto value have the same name: ``JobState.RUNNING`` is ``JOB_STATE_RUNNING``. An enum whose
  proto field is a string is sent by its value.
- ``None`` is a field that is not set or, where the proto field has no presence, a field with its default value.
- Tuples and frozensets are repeated fields, and the latter are sent sorted. A mapping is a map field, or a repeated
  message of two fields, key and value. A ``datetime`` is a ``Timestamp`` in UTC, a ``Path`` is a string.
- A dataclass is a message, converted by the codec of that pair, or by one that is derived likewise.

A daemon and its clients may be of different versions. A client reads an enum value that it does not know as
``Unrecognized`` where the type of the field allows it, as the field's value in ``unknown`` where there is one, as None
where the field is optional, and leaves it or the element that holds it out of a repeated field.

Each plan is made at the first use and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.core.ids import Unrecognized, require_recognized

_Value = TypeVar("_Value")
_Wire = TypeVar("_Wire", bound=Message)
_Member = TypeVar("_Member", bound=Enum)

_UNITS: Final = (("_per_s", "_per_second"), ("_s", "_seconds"))


class UnknownValue(ValueError):
    """A value of an enum that this version does not know, in a field that has no place for it."""


class EnumCodec(Generic[_Member]):
    """The numbers of an enum's members in a proto enum of equal names.

    Args:
        described: The proto enum. Its value 0 is named PREFIX_UNSPECIFIED.

    Raises:
        TypeError: A member has no value of its name in the proto enum.
    """

    def __init__(self, kind: type[_Member], described: EnumDescriptor) -> None:
        prefix = described.values_by_number[0].name.removesuffix("UNSPECIFIED")
        missing = [member.name for member in kind if prefix + member.name not in described.values_by_name]
        if missing:
            raise TypeError(f"{described.full_name} has no {prefix}{missing[0]}")
        self._numbers = {member: described.values_by_name[prefix + member.name].number for member in kind}
        self._members = {number: member for member, number in self._numbers.items()}

    def to_number(self, member: _Member | Unrecognized) -> Any:
        return self._numbers[require_recognized(member)]

    def get(self, number: int) -> _Member | None:
        """Returns the member with a number; None if there is none."""
        return self._members.get(number)

    def from_number(self, number: int) -> _Member:
        """Returns the member with a number."""
        member = self._members.get(number)
        if member is None:
            raise UnknownValue(number)
        return member

    def open_from_number(self, number: int) -> _Member | Unrecognized:
        """Returns the member with a number, or what stands for one that this version does not know."""
        member = self._members.get(number)
        if member is None:
            return Unrecognized(f"unrecognized_{number}" if number else "unspecified")
        return member


@dataclass(frozen=True, slots=True)
class Part:
    """How a field is converted.

    Attributes:
        write: Converts Python's value to the proto's; None to copy it.
        read: Converts the proto's value to Python's; None to copy it. May raise ``UnknownValue``.
        optional: Whether Python's value may be None.
    """

    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    optional: bool = False


class Codec(Generic[_Value, _Wire]):
    """Converts values of a dataclass to messages and back.

    Args:
        names: Proto field by field, where the names differ.
        parts: Conversions that do not follow from the type, by field.
        unknown: Value of an enum field that holds a value which this version does not know, by field.
        omit: Fields that are not sent; ``from_message`` takes those without a default as arguments.
    """

    _known: ClassVar[dict[tuple[type[Any], str], Codec[Any, Any]]] = {}

    def __init__(
        self,
        value: type[_Value],
        message: type[_Wire],
        *,
        names: Mapping[str, str] | None = None,
        parts: Mapping[str, Part] | None = None,
        unknown: Mapping[str, object] | None = None,
        omit: tuple[str, ...] = (),
    ) -> None:
        self.value = value
        self.message = message
        self._names = names or {}
        self._parts = parts or {}
        self._unknown = unknown or {}
        self._omit = omit
        self._known[value, message.DESCRIPTOR.full_name] = self

    @classmethod
    def of(cls, value: type[Any], described: Descriptor) -> Codec[Any, Any]:
        """Returns the codec of a pair; one without special cases if none was made."""
        return cls._known.get((value, described.full_name)) or Codec[Any, Any](value, GetMessageClass(described))

    def to_message(self, value: Any) -> _Wire:
        """Returns a value as a message."""
        plan, _ = self.plan
        return self.message(
            **{
                wire: getattr(value, name) if write is None else write(getattr(value, name))
                for name, wire, write in plan
            }
        )

    def from_message(self, message: _Wire, **given: Any) -> _Value:
        """Returns the value that a message stands for."""
        _, plan = self.plan
        for name, wire, presence, read in plan:
            if presence and not message.HasField(wire):
                given[name] = None
            else:
                found = getattr(message, wire)
                given[name] = found if read is None else read(found)
        return self.value(**given)

    @cached_property
    def plan(
        self,
    ) -> tuple[
        tuple[tuple[str, str, Callable[[Any], Any] | None], ...],
        tuple[tuple[str, str, bool, Callable[[Any], Any] | None], ...],
    ]:
        """How each field is written (name, proto field, conversion) and read (with whether None is possible)."""
        writing, reading = [], []
        hints = get_type_hints(self.value)
        message: Any = self.message.DESCRIPTOR
        for field in fields(self.value):  # type: ignore[arg-type]
            name = field.name
            if name in self._omit:
                continue
            wire = self._names.get(name) or _proto_name(name, message)
            described = message.fields_by_name.get(wire)
            if described is None:
                raise TypeError(f"{message.full_name} has no {wire} for {self.value.__name__}.{name}")
            part = self._parts.get(name) or _part(hints[name], described)
            read = part.read
            if name in self._unknown and read is not None:
                read = _or_else(read, self._unknown[name])
            writing.append((name, wire, part.write))
            reading.append((name, wire, part.optional and described.has_presence, read))
        return tuple(writing), tuple(reading)


def timestamp(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time)
    return message


def moment(message: Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)


def _proto_name(name: str, described: Descriptor) -> str:
    for ours, theirs in _UNITS:
        renamed = name.removesuffix(ours) + theirs
        if name.endswith(ours) and renamed in described.fields_by_name:
            return renamed
    return name


def _part(hint: Any, described: FieldDescriptor, *, element: bool = False) -> Part:
    while hasattr(hint, "__supertype__"):  # a NewType
        hint = hint.__supertype__
    if get_origin(hint) in (Union, UnionType):
        return _union(get_args(hint), described)
    if described.is_repeated and not element:
        return _repeated(get_origin(hint), get_args(hint), described)
    return _single(hint, described)


def _union(arguments: tuple[Any, ...], described: FieldDescriptor) -> Part:
    kinds = [kind for kind in arguments if kind not in (type(None), Unrecognized)]
    if len(kinds) != 1:
        raise TypeError(f"{described.full_name}: no single type to convert to")
    if Unrecognized in arguments and described.enum_type is not None:
        codec = EnumCodec(kinds[0], described.enum_type)
        return Part(codec.to_number, codec.open_from_number)
    part = _part(kinds[0], described, element=True)
    if type(None) not in arguments:
        return part
    read = None if part.read is None else _or_else(part.read, None)
    if not described.has_presence:
        read = _none_if_default(read)
    return Part(_unless_none(part.write), read, optional=True)


def _single(kind: Any, described: FieldDescriptor) -> Part:
    if kind is datetime:
        return Part(timestamp, moment)
    if kind is Path:
        return Part(str, Path)
    if isinstance(kind, type) and issubclass(kind, Enum):
        if described.enum_type is None:
            members = {member.value: member for member in kind}
            return Part(lambda member: member.value, lambda text: _member(members, text))
        codec = EnumCodec(kind, described.enum_type)
        return Part(codec.to_number, codec.from_number)
    if is_dataclass(kind) and isinstance(kind, type) and described.message_type is not None:
        nested = Codec.of(kind, described.message_type)
        return Part(nested.to_message, nested.from_message)
    if kind in (str, int, float, bool, bytes) and described.message_type is None:
        return Part()
    raise TypeError(f"{described.full_name}: {kind} cannot be converted")


def _repeated(origin: Any, arguments: tuple[Any, ...], described: FieldDescriptor) -> Part:
    if origin in (dict, Mapping):
        return _mapping(arguments, described)
    if origin not in (tuple, frozenset):
        raise TypeError(f"{described.full_name}: {origin} cannot be converted")
    part = _part(arguments[0], described, element=True)
    make: Callable[[Any], Any] = origin
    write, read = part.write, part.read
    if origin is frozenset:
        return Part(lambda items: sorted(items if write is None else map(write, items)), _reading(make, read))
    if write is None:
        return Part(None, _reading(make, read))
    each = write
    return Part(lambda items: [each(item) for item in items], _reading(make, read))


def _mapping(arguments: tuple[Any, ...], described: FieldDescriptor) -> Part:
    entry = described.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if entry.fields_by_name["value"].message_type is not None:
            raise TypeError(f"{described.full_name}: name the conversion of its values")
        return Part(dict, dict)
    if entry is None or len(entry.fields) != 2:
        raise TypeError(f"{described.full_name}: a mapping needs two fields, key and value")
    kind = GetMessageClass(entry)
    (key, value), parts = entry.fields, [_part(*pair) for pair in zip(arguments, entry.fields, strict=True)]
    write = [part.write or _same for part in parts]
    read = [part.read or _same for part in parts]
    return Part(
        lambda items: [kind(**{key.name: write[0](k), value.name: write[1](v)}) for k, v in items.items()],
        lambda pairs: {read[0](getattr(pair, key.name)): read[1](getattr(pair, value.name)) for pair in pairs},
    )


def _reading(make: Callable[[Any], Any], read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if read is None:
        return make
    each = read

    def items(found: Any) -> Any:
        known = []
        for item in found:
            try:
                known.append(each(item))
            except UnknownValue:
                continue
        return make(known)

    return items


def _member(members: Mapping[str, Enum], text: str) -> Enum:
    if text not in members:
        raise UnknownValue(text)
    return members[text]


def _same(value: Any) -> Any:
    return value


def _unless_none(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if convert is None:
        return None
    some = convert
    return lambda value: None if value is None else some(value)


def _none_if_default(read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    some = read or _same
    return lambda value: some(value) if value else None


def _or_else(read: Callable[[Any], Any], default: object) -> Callable[[Any], Any]:
    def reading(value: Any) -> Any:
        try:
            return read(value)
        except UnknownValue:
            return default

    return reading
