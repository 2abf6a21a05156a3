"""Reads names, types and comments of proto files; enough of the language for the files of this project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_OPENING = re.compile(r"^(service|message|enum) (\w+) \{(\})?$")
_CALL = re.compile(r"^rpc (\w+\(.*\) returns \(.*\))(?:;| \{\})$")
_FIELD = re.compile(r"^((?:optional |repeated )?[\w.]+|map<.*>) (\w+) = \d+[^;]*;(?:\s*// (.*))?$")
_VALUE = re.compile(r"^(\w+) = \d+;(?:\s*// (.*))?$")


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its comment, and signature and comment of each call."""

    name: str
    comment: str
    calls: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Message:
    """A message or an enum: its comment, and name, type and comment of each field."""

    kind: str
    name: str
    comment: str
    rows: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A file: its path below the folder of protos, its comment and what it declares."""

    path: str
    comment: str
    items: list[Service | Message]


def proto_files(folder: Path) -> Iterator[ProtoFile]:
    for path in sorted(folder.rglob("*.proto")):
        yield _read(path, str(path.relative_to(folder)))


def _read(path: Path, name: str) -> ProtoFile:
    items: list[Service | Message] = []
    open_items: list[Service | Message | None] = []
    comment: list[str] = []
    statement = ""
    head = ""
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            continue
        if not line:
            comment.clear()
            continue
        statement = f"{statement} {line}".strip()
        if not re.search(r"[;{}](?:\s*//.*)?$", statement):
            continue
        said, text, statement = " ".join(comment), statement, ""
        comment.clear()
        if text.startswith("syntax"):
            head = said
        elif opening := _OPENING.match(text):
            outer = next((each.name for each in reversed(open_items) if each is not None), "")
            full = f"{outer}.{opening[2]}" if outer else opening[2]
            item = Service(full, said) if opening[1] == "service" else Message(opening[1], full, said)
            items.append(item)
            if not opening[3]:
                open_items.append(item)
        elif text.startswith("oneof "):
            open_items.append(None)
        elif text == "}":
            open_items.pop()
        elif not text.startswith(("package", "import", "reserved", "option")):
            _add(next(each for each in reversed(open_items) if each is not None), text, said, name)
    return ProtoFile(name, head, items)


def _add(item: Service | Message, text: str, comment: str, file: str) -> None:
    if isinstance(item, Service) and (call := _CALL.match(text)):
        item.calls.append((call[1], comment))
    elif isinstance(item, Message) and item.kind == "enum" and (value := _VALUE.match(text)):
        item.rows.append((f"`{value[1]}`", comment or value[2] or ""))
    elif isinstance(item, Message) and (found := _FIELD.match(text)):
        item.rows.append((f"`{found[2]}`", found[1], comment or found[3] or ""))
    else:
        raise ValueError(f"{file}: {text!r} is not understood")
