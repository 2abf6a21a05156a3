"""The console's files: complete, of this box only, and without anything that parses text as code."""

import fnmatch
import re
import tomllib
from pathlib import Path

import pytest

from tests.unit.console.modules import CONSOLE, Module, modules, shipped, without_comments

ROOT = CONSOLE.parents[1]
KINDS = {".js", ".css", ".html", ".json", ".svg"}

CODE_FROM_TEXT = (
    r"\binnerHTML\b",
    r"\bouterHTML\b",
    r"\binsertAdjacentHTML\b",
    r"\bcreateContextualFragment\b",
    r"\bDOMParser\b",
    r"\bsetHTML\w*",
    r"\bdocument\.write",
    r"\beval\b",
    r"\bnew\s+Function\b",
    r"\bset(?:Timeout|Interval)\(\s*['\"`]",
    r"\bsrcdoc\b",
    r"javascript:",
    r"""setAttribute\(\s*['"](?:style|on\w+)['"]""",
)
"""What the security policy refuses, or would have to be let through it."""

NAMESPACES = {"http://www.w3.org/2000/svg"}
"""Names, which are never fetched."""


def test_there_is_nothing_but_what_browsers_load() -> None:
    assert {path.suffix for path in shipped()} <= KINDS


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.relative_to(CONSOLE).as_posix())
def test_nothing_comes_from_another_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"""\b(?:https?|wss?)://[^\s'"`)<]*""", text)) <= NAMESPACES
    assert re.findall(r"""(?:src|href|url\(|import|from)\s*[=(]?\s*['"]//""", text) == []
    assert re.findall(r"(?:url\(|@import)\s*['\"]?(?!#)\S*", text) == []


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_no_text_becomes_code(module: Module) -> None:
    assert {pattern for pattern in CODE_FROM_TEXT if re.search(pattern, module.code)} == set()


@pytest.mark.parametrize(
    "path", [path for path in shipped() if path.suffix in {".html", ".svg"}], ids=lambda path: path.name
)
def test_markup_has_neither_scripts_nor_styles_of_its_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\s(?:style|on\w+)\s*=", text) == []
    assert [body for body in re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL) if body.strip()] == []


def test_the_wheel_has_all_of_it() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    excluded = build["wheel"]["exclude"]
    assert build["wheel"]["packages"] == ["edge_rag"]
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    for path in shipped():
        name = path.relative_to(ROOT).as_posix()
        assert not any(fnmatch.fnmatch(name, pattern) for pattern in excluded), name
        assert not any(fnmatch.fnmatch(part, pattern) for part in Path(name).parts for pattern in ignored), name


def test_comments_are_told_from_strings() -> None:
    source = "a = 'http://b'; // no\nb = /[/]\\/x/u; /* no\n no */ c = `//yes`;"
    assert without_comments(source) == "a = 'http://b';  \nb = /[/]\\/x/u;   c = `//yes`;"
