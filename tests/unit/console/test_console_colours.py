"""Every pair of text and ground in the design's colours can be read, in both themes (WCAG 2.2, 1.4.3 and 1.4.11)."""

import re

import pytest

from tests.unit.console.modules import CONSOLE, shipped

BASE = (CONSOLE / "core" / "base.css").read_text(encoding="utf-8")
TOKEN = re.compile(r"--([\w-]+):\s*light-dark\(\s*(#[0-9a-f]{6})\s*,\s*(#[0-9a-f]{6})\s*\)")
TOKENS = {name: colours for name, *colours in TOKEN.findall(BASE)}

LEAST_OF_TEXT = 4.5
LEAST_OF_EDGES = 3.0

GROUNDS = ("ground", "raised", "sunken")
TEXTS = [(text, ground) for text in ("ink", "soft", "accent") for ground in (*GROUNDS, "tint")]
TEXTS += [(text, ground) for text in ("good", "warn", "bad") for ground in GROUNDS]
TEXTS += [("ink", "bad-tint"), ("ink", "warn-tint"), ("bad", "bad-tint"), ("warn", "warn-tint")]
TEXTS += [("on-accent", "accent"), ("on-mark", "mark"), ("ground", "ink")]
EDGES = [("edge", ground) for ground in GROUNDS] + [("accent", "ground"), ("bad", "ground")]


def luminance(colour: str) -> float:
    """Relative luminance of a colour ``#rrggbb``, 0 to 1 (WCAG 2.2)."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_edges_can_be_told_from_their_ground(theme: int) -> None:
    for pairs, least in ((TEXTS, LEAST_OF_TEXT), (EDGES, LEAST_OF_EDGES)):
        found = {pair: round(contrast(TOKENS[pair[0]][theme], TOKENS[pair[1]][theme]), 2) for pair in pairs}
        assert {pair: ratio for pair, ratio in found.items() if ratio < least} == {}


def test_colours_are_tokens_of_the_design() -> None:
    for path in shipped():
        if path.suffix == ".css":
            rest = TOKEN.sub("", path.read_text(encoding="utf-8"))
            assert re.findall(r"#[0-9a-fA-F]{3,8}\b", rest) == [], path.name
            used = set(re.findall(r"var\(--([\w-]+)\)", rest))
            defined = set(re.findall(r"--([\w-]+):", BASE)) | set(re.findall(r"--([\w-]+):", rest))
            scripts = "".join(each.read_text(encoding="utf-8") for each in shipped() if each.suffix == ".js")
            assert {name for name in used - defined if f"--{name}" not in scripts} == set(), path.name


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
