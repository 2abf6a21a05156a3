"""The console's responses: the page by language with its policy, and files that are found in a table alone."""

import gzip
import hashlib
import re
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import ConfigurationError
from edge_rag.server.http.console import Console, accepts_gzip, preferred_language

PAGE = """<html lang="{{lang}}" data-base="{{base}}"><style>{{style}}</style>
<p title="{{version}}">{{t:app.title}}</p></html>"""
FILES = {
    "core/base.css": b"p { color: red; }",
    "core/app.js": b"export const a = 1;",
    "locales/en.json": b'{"app": {"title": "Ask & <see>"}}',
    "locales/de.json": '{"app": {"title": "Fragen für \\"Sie\\""}}'.encode(),
}


def test_the_page_has_the_texts_of_its_language_as_text() -> None:
    console = Console(FILES, PAGE)
    assert console.languages == ("de", "en")
    english = console.page("en-GB,en;q=0.9").body.decode()
    assert f'<html lang="en" data-base="{console.base}">' in english
    assert "Ask &amp; &lt;see&gt;</p>" in english
    german = console.page("de-CH")
    assert "Fragen für &quot;Sie&quot;</p>" in german.body.decode()
    assert (german.headers["content-language"], german.headers["vary"]) == ("de", "accept-language, accept-encoding")
    assert german.tag != console.page("").tag


def test_the_policy_allows_the_style_sheet_of_the_page_by_its_hash_and_nothing_unsafe() -> None:
    page = Console(FILES, PAGE).page("")
    found = re.search(r"<style>(.*)</style>", page.body.decode())
    assert found is not None
    digest = b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy.pop("style-src") == f"'self' 'sha256-{digest}'"
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "img-src": "'self' blob:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_a_file_is_found_by_its_very_path_and_is_compressed_once() -> None:
    console = Console(FILES, PAGE)
    found = console.file("core/app.js")
    assert found is not None
    assert found.media_type == "text/javascript; charset=utf-8"
    assert "immutable" in found.headers["cache-control"]
    assert gzip.decompress(found.compressed) == found.body == FILES["core/app.js"]
    for path in (
        "",
        "index.html",
        "core",
        "core/",
        "/core/app.js",
        "core/../core/app.js",
        "../errors.py",
        "CORE/app.js",
    ):
        assert console.file(path) is None


def test_the_place_of_the_files_changes_with_any_of_them() -> None:
    console = Console(FILES, PAGE)
    assert Console(dict(reversed(FILES.items())), PAGE).base == console.base
    others = [Console({**FILES, path: content + b" "}, PAGE).base for path, content in FILES.items()]
    others.append(Console(FILES, PAGE + "\n").base)
    assert len({console.base, *others}) == len(FILES) + 2


def test_the_modules_of_a_folder_are_loaded_early() -> None:
    console = Console({**FILES, "ask/view.js": b"", "ask/answer.js": b"", "ask/ask.css": b""}, "{{modules:ask}}")
    found = re.findall(r'<link rel="modulepreload" fetchpriority="low" href="([^"]+)">', console.page("").body.decode())
    assert found == [f"{console.base}/ask/answer.js", f"{console.base}/ask/view.js"]


@pytest.mark.parametrize("unknown", ["{{t:app.missing}}", "{{t:nothing.title}}", "{{nonce}}", "{{modules:none}}"])
def test_a_text_that_a_language_lacks_is_an_error_at_the_start(unknown: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(unknown)):
        Console(FILES, PAGE + unknown)


def test_a_file_of_an_unknown_kind_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"core/x\.exe"):
        Console({**FILES, "core/x.exe": b""}, PAGE)


def test_the_installed_console_is_complete_and_small() -> None:
    console = Console.load()
    assert console.languages == ("de", "en", "es", "fr")
    for language in console.languages:
        body = console.page(language).body.decode()
        assert "{{" not in body
        paths = re.findall(rf'"{console.base}/([^"]+)"', body)
        assert paths
        assert [path for path in paths if console.file(path) is None] == []


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("DE-at", "de"),
        ("pt-BR,pt;q=0.9,es;q=0.4,de;q=0.7", "de"),
        ("fr;q=0, de;q=0.1", "de"),
        ("zh-Hant-TW, ja", "en"),
        ("*", "en"),
        ("de;q=2", "en"),
        ("es ; q=0.5 , fr; q=0.6", "fr"),
    ],
)
def test_the_language_is_the_one_that_the_browser_prefers(accepted: str, language: str) -> None:
    assert preferred_language(accepted, ("de", "en", "es", "fr")) == language


@given(st.text(max_size=200))
def test_any_header_gives_a_language_that_there_is(accepted: str) -> None:
    assert preferred_language(accepted, ("de", "en")) in ("de", "en")
    assert accepts_gzip(accepted) in (True, False)


@pytest.mark.parametrize(
    ("accepted", "accepts"),
    [
        ("gzip, deflate, br", True),
        ("GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("", False),
    ],
)
def test_gzip_is_sent_to_those_who_accept_it(accepted: str, accepts: bool) -> None:
    assert accepts_gzip(accepted) is accepts
