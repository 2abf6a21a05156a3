"""The console's texts: each one in every language, with the same values in it, and each one shown somewhere."""

import json
import re
from typing import Any

import pytest

from tests.unit.console.modules import CONSOLE, modules

LANGUAGES = ("en", "de", "es", "fr")
CATEGORIES = {"zero", "one", "two", "few", "many", "other"}
"""Plural forms of Unicode's locale data, as ``Intl.PluralRules`` names them."""

NEEDED = {"en": {"one", "other"}, "de": {"one", "other"}, "es": {"one", "other"}, "fr": {"one", "other"}}


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key is there twice: {sorted(name for name, _ in pairs)}"
    return found


def texts(language: str) -> dict[str, str | dict[str, str]]:
    """Returns all texts of a language by ``section.key``."""
    file = CONSOLE / "locales" / f"{language}.json"
    sections = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=without_doubles)
    return {f"{section}.{key}": text for section, keys in sections.items() for key, text in keys.items()}


def forms(text: str | dict[str, str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text.values())


def values(text: str | dict[str, str]) -> set[str]:
    return {name for form in forms(text) for name in re.findall(r"\{(\w+)\}", form)}


ENGLISH = texts("en")
KEY = r"[a-z]\w*\.[a-z]\w*"


def test_there_are_four_languages() -> None:
    assert {path.name for path in (CONSOLE / "locales").iterdir()} == {f"{language}.json" for language in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_every_text_with_its_values(language: str) -> None:
    found = texts(language)
    assert found.keys() ^ ENGLISH.keys() == set()
    assert {key for key, text in found.items() if not all(form.strip() for form in forms(text))} == set()
    assert {key for key, text in found.items() if values(text) != values(ENGLISH[key])} == set()
    assert {key for key, text in found.items() if isinstance(text, dict) != isinstance(ENGLISH[key], dict)} == set()
    for key, text in found.items():
        if isinstance(text, dict):
            assert NEEDED[language] <= text.keys() <= CATEGORIES, key
            assert values(text) == values(text["other"]), key


def test_languages_are_not_english() -> None:
    """Words that are the same in two languages exist; whole sentences do not."""
    sentences = {key: text for key, text in ENGLISH.items() if isinstance(text, str) and text.count(" ") >= 3}
    for language in LANGUAGES[1:]:
        found = texts(language)
        assert {key for key, text in sentences.items() if found[key] == text} == set(), language


def test_every_text_that_is_asked_for_exists_and_every_text_is_asked_for() -> None:
    page = (CONSOLE / "index.html").read_text(encoding="utf-8")
    asked = set(re.findall(rf"\{{\{{t:({KEY})\}}\}}", page))
    beginnings = set()
    sections = {key.split(".")[0] for key in ENGLISH}
    named: set[str] = set()
    for module in modules():
        asked |= set(re.findall(rf"""\bt\(\s*['"`]({KEY})['"`]""", module.code))
        named |= {key for key in re.findall(rf"""['"`]({KEY})['"`]""", module.code) if key.split(".")[0] in sections}
        beginnings |= set(re.findall(r"`([a-z]\w*\.\w*)\$\{", module.code))
    assert asked - ENGLISH.keys() == set()
    known = tuple(beginning for beginning in beginnings if beginning.split(".")[0] in sections)
    assert {beginning for beginning in known if not any(key.startswith(beginning) for key in ENGLISH)} == set()
    unused = {key for key in ENGLISH if key not in asked | named and not key.startswith(known)}
    assert unused == set()
