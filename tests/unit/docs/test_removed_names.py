"""The private names that the field's terms replaced do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ALLOWED = {"docs/reference/renamed.md", "edge_rag/config/renamed.py"}
"""Files that translate old names."""

SUFFIXES = {".py", ".proto", ".toml", ".yml", ".yaml", ".json", ".md", ".conf", ".service"}

NAMES = re.findall(
    r"\w+",
    """
    Turnstile Doorkeeper Newcomers STRANGER FairShares LiveRequest EngineLook Lookout Roster Inbox left_queue
    room_for draft_room GeneratorExchange SaidTokens said_stream written_elsewhere AnswerChannel JobLedger
    LentEmbedder DecisionSink DecisionKind RemoteDesk EncodingDesk encoding_desk RemoteUnfit Homecoming
    board_watch memory_watch VectorHome vector_home moved_tokens forced_run step_back set_aside_what_stays
    service_manager handing_over folder_look jsonable durable_file planned_memory JobOver NeverFits MemoryShort
    CallTooLong unread_seconds unread_events rest_seconds first_text_seconds WhenUnmet step_down stepped_down
    in_favour_of halvings under_way patience_s open_doors shut_out said_pacing stock_weights give_way give_back
    proceed pass_over take_off engine_watch ListDecisions IndexHome page_picture as_it_came came_along given_up
    """,
)
"""Compound names: nowhere in code, protos, deployment files and documents."""

WORDS = re.findall(
    r"\w+",
    """
    turnstile doorkeeper newcomers stranger hasty barred roster inbox stepper lane warming awaiting anticipate
    anticipated anticipates lookout spoke speaks seal bring adopt lease restrain relieve displacement deferral
    dictation teller hear silence tower desk desks courier parcel carry freight homecoming errand depart outlook
    books lied blame precedence lending lent borrow borrowed asker announcing notches burden burdens lever
    levers relief workshop child gutters entrance saying rereading keeping operating telling halvings missed
    unmet whoever nobody somebody whatever whom favour doors said told heard patience decisions trail ballast wish
    pulse fresh came
    """,
)
"""Words: in no identifier of the package, alone or as a part."""


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("edge_rag", "proto", "deploy", "systemd", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            written = path.suffix in SUFFIXES and not name.startswith("edge_rag/api/")
            if written and name not in ALLOWED:
                yield name, path.read_text(encoding="utf-8")
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        yield name, (ROOT / name).read_text(encoding="utf-8")


@cache
def identifiers() -> dict[str, set[str]]:
    """Returns the files of each identifier in text."""
    found: dict[str, set[str]] = {}
    for name, text in texts():
        for identifier in set(re.findall(r"[A-Za-z]\w*", text)):
            found.setdefault(identifier, set()).add(name)
    return found


@cache
def parts() -> dict[str, set[str]]:
    """Returns the Python identifiers that contain each word, with their files."""
    found: dict[str, set[str]] = {}
    for name, text in texts():
        if name.endswith(".py"):
            for identifier in declared(ast.parse(text)):
                for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier):
                    found.setdefault(word.lower(), set()).add(f"{name}: {identifier}")
    return found


def declared(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_compound_name_is_gone(name: str) -> None:
    assert identifiers().get(name, set()) == set()


@pytest.mark.parametrize("word", sorted(WORDS))
def test_no_identifier_contains_a_removed_word(word: str) -> None:
    assert parts().get(word, set()) == set()
