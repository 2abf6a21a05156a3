"""The console: its page in each language, and its modules, styles and texts, as responses made once at the start.

A request finds its response in a table by its path: no path of a request is ever one of the file system.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

import edge_rag
from edge_rag.errors import ConfigurationError
from edge_rag.server.http.connection import error_body
from edge_rag.server.http.exchange import JSON, Exchange
from edge_rag.service.call import Operation

SHOW_CONSOLE: Final = Operation("ShowConsole", None, anonymous=True, probe=True)

DEFAULT_LANGUAGE: Final = "en"

_PACKAGE: Final = "edge_rag"
_FOLDER: Final = "console"
_PAGE: Final = "index.html"
_STYLE: Final = "core/base.css"
_LOCALES: Final = "locales/"
_HASH_DIGITS: Final = 16

_MEDIA_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
_NEVER_CHANGES: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"

_UNUSED_FEATURES: Final = (
    "accelerometer",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "hid",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "serial",
    "usb",
    "xr-spatial-tracking",
)
"""Features that a browser offers to pages and this one does not use."""

_OF_PAGE: Final[Mapping[str, str]] = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": ", ".join(f"{feature}=()" for feature in _UNUSED_FEATURES),
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
_OF_ASSETS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}

_PLACEHOLDER: Final = re.compile(r"\{\{([a-z_.:A-Z0-9]+)\}\}")
_INLINE_STYLE: Final = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_LANGUAGE_RANGE: Final = re.compile(r"([A-Za-z]{1,8})(?:-[A-Za-z0-9]{1,8})*(?:\s*;\s*q=([01](?:\.\d{0,3})?))?")
_MOST_LANGUAGES: Final = 32
"""Languages of a request that are looked at."""


@dataclass(frozen=True, slots=True)
class ConsoleRoute:
    """A route of the console: ``/``, or that of its files.

    Attributes:
        path: Its path.
        operation: What its callers want.
        method: HTTP method; HEAD is answered, too.
    """

    path: str
    operation: Operation = SHOW_CONSOLE
    method: str = "GET"


CONSOLE_ROUTES: Final = (ConsoleRoute("/"), ConsoleRoute("/console/{hash}/{file:path}"))


@dataclass(frozen=True, slots=True)
class Representation:
    """A response that does not depend on who asks.

    Attributes:
        body: Its bytes.
        compressed: The same by gzip.
        media_type: Its media type.
        headers: Further headers.
        tag: Its entity tag.
    """

    body: bytes
    compressed: bytes
    media_type: str
    headers: Mapping[str, str]
    tag: str

    @classmethod
    def of(cls, body: bytes, media_type: str, headers: Mapping[str, str]) -> Representation:
        tag = f'"{hashlib.sha256(body).hexdigest()[:_HASH_DIGITS]}"'
        return cls(body, gzip.compress(body, 9, mtime=0), media_type, headers, tag)


class Console:
    """The console as it is served.

    Args:
        files: Contents of the files by path, without the page.
        page: The page: HTML with placeholders. ``{{style}}`` is the basic style sheet, ``{{base}}`` where the files
            are, ``{{lang}}`` the language, ``{{version}}`` the daemon's version, ``{{t:section.key}}`` a text,
            ``{{modules:folder}}`` links that have a browser load the modules of a folder early.
    """

    def __init__(self, files: Mapping[str, bytes], page: str) -> None:
        digest = hashlib.sha256(page.encode())
        for path in sorted(files):
            digest.update(f"\n{path} {len(files[path])}\n".encode() + files[path])
        self.base = f"/console/{digest.hexdigest()[:_HASH_DIGITS]}"
        self._files = {
            path: Representation.of(
                content, _media_type(path), {"cache-control": _NEVER_CHANGES, "vary": "accept-encoding", **_OF_ASSETS}
            )
            for path, content in files.items()
        }
        values = {
            "style": files.get(_STYLE, b"").decode(),
            "base": self.base,
            "version": escape(edge_rag.__version__),
            **_preloads(files, self.base),
        }
        self._pages = {
            path.removeprefix(_LOCALES).removesuffix(".json"): _page(page, values, path, files[path])
            for path in files
            if path.startswith(_LOCALES)
        }
        if DEFAULT_LANGUAGE not in self._pages:
            raise ConfigurationError(f"http.console: the file {_LOCALES}{DEFAULT_LANGUAGE}.json is missing")

    @classmethod
    def load(cls) -> Console:
        """Reads the files of the package."""
        files = dict(_read(resources.files(_PACKAGE) / _FOLDER, ""))
        page = files.pop(_PAGE, None)
        if page is None:
            raise ConfigurationError(f"http.console: {_PAGE} is not installed; http.console = false serves none")
        return cls(files, page.decode())

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that the page is in, ISO 639-1 codes."""
        return tuple(sorted(self._pages))

    def page(self, accepted_languages: str) -> Representation:
        """Returns the page in the language that a request prefers.

        Args:
            accepted_languages: The header ``Accept-Language``; empty for none.
        """
        return self._pages[preferred_language(accepted_languages, self.languages)]

    def file(self, path: str) -> Representation | None:
        """Returns a file by its path below ``base``; None if there is none."""
        return self._files.get(path)

    async def answer(self, exchange: Exchange) -> None:
        """Answers a request of one of the routes."""
        exchange.ignore_body()
        if "hash" not in exchange.path:
            found: Representation | None = self.page(exchange.headers.get("accept-language", ""))
        else:
            named = f"/console/{exchange.path['hash']}"
            found = self.file(exchange.path["file"]) if named == self.base else None
        if found is None:
            message = "the console has no such file; load the page again"
            await exchange.respond(404, error_body(message, "not_found"), JSON, {})
            return
        headers = {**found.headers, "etag": found.tag}
        if found.tag in exchange.headers.get("if-none-match", ""):
            await exchange.respond_empty(304, headers)
        elif accepts_gzip(exchange.headers.get("accept-encoding", "")):
            await exchange.respond(200, found.compressed, found.media_type, {**headers, "content-encoding": "gzip"})
        else:
            await exchange.respond(200, found.body, found.media_type, headers)


def preferred_language(accepted: str, available: tuple[str, ...]) -> str:
    """Returns the language that a header ``Accept-Language`` prefers (RFC 9110, section 12.5.4).

    Args:
        available: ISO 639-1 codes.

    Returns:
        One of ``available``; ``DEFAULT_LANGUAGE`` if none of them is accepted.
    """
    best, best_quality = DEFAULT_LANGUAGE, 0.0
    for each in accepted.split(",", _MOST_LANGUAGES)[:_MOST_LANGUAGES]:
        found = _LANGUAGE_RANGE.fullmatch(each.strip())
        if found is None or found[1].lower() not in available:
            continue
        quality = 1.0 if found[2] is None else float(found[2])
        if quality > best_quality:
            best, best_quality = found[1].lower(), quality
    return best


def accepts_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        coding, *parameters = (part.strip() for part in each.split(";"))
        if coding == "gzip":
            return not any(re.fullmatch(r"q=0(\.0{0,3})?", parameter) for parameter in parameters)
    return False


def _preloads(files: Mapping[str, bytes], base: str) -> dict[str, str]:
    links: dict[str, str] = {}
    for path in sorted(files):
        if path.endswith(".js"):
            name = f"modules:{path.partition('/')[0]}"
            link = f'<link rel="modulepreload" fetchpriority="low" href="{base}/{path}">'
            links[name] = links.get(name, "") + link
    return links


def _page(page: str, values: Mapping[str, str], locale: str, texts: bytes) -> Representation:
    """Returns the page in one language, with a policy that allows its style sheet and nothing else that is inline."""
    try:
        sections = json.loads(texts)
    except ValueError as error:
        raise ConfigurationError(f"http.console: {locale} is damaged: {error}") from error
    language = locale.removeprefix(_LOCALES).removesuffix(".json")
    values = {**values, "lang": language}

    def value(found: re.Match[str]) -> str:
        kind, _, key = found[1].partition(":")
        if kind == "t" and (text := _text(sections, key)) is not None:
            return escape(text)
        if found[1] in values:
            return values[found[1]]
        raise ConfigurationError(f"http.console: {locale} has no value for {found[0]} of {_PAGE}")

    filled = _PLACEHOLDER.sub(value, page)
    styles = " ".join(f"'sha256-{_sha256(inline)}'" for inline in _INLINE_STYLE.findall(filled))
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": f"'self' {styles}".strip(),
        "img-src": "'self' blob:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    headers = {
        "cache-control": _ASK_AGAIN,
        "content-language": language,
        "content-security-policy": "; ".join(f"{name} {allowed}" for name, allowed in policy.items()),
        "vary": "accept-language, accept-encoding",
        **_OF_PAGE,
    }
    return Representation.of(filled.encode(), _MEDIA_TYPES["html"], headers)


def _text(sections: Any, key: str) -> str | None:
    section, _, name = key.partition(".")
    found = sections.get(section, {}).get(name)
    return found if isinstance(found, str) else None


def _sha256(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _media_type(path: str) -> str:
    kind = _MEDIA_TYPES.get(path.rpartition(".")[2])
    if kind is None:
        raise ConfigurationError(f"http.console: the media type of {path} is not known")
    return kind


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
