"""The server's side of the Model Context Protocol, revisions 2026-07-28 and 2025-11-25; pure.

Each message shows its revision: since 2026-07-28 each request carries its protocol version in
``_meta``, earlier ones do not. Therefore nothing is kept from one message to the next. JSON-RPC frames the messages.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import edge_rag
from edge_rag.errors import UndecodableMessage
from edge_rag.server.http.fields import parse_json
from edge_rag.server.mcp.tools import TOOLS, Tool

MODERN_VERSION: Final = "2026-07-28"
"""Revision whose requests carry their version in ``_meta``."""

HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Revisions that begin with ``initialize``, the newest first. What tools need is alike in all of them, but for the
batches of the oldest, which are not supported."""

VERSION_HEADER: Final = "mcp-protocol-version"
_METHOD_HEADER: Final = "mcp-method"
_NAME_HEADER: Final = "mcp-name"

_RESERVED: Final = "io.modelcontextprotocol/"
_VERSION_KEY: Final = f"{_RESERVED}protocolVersion"
_CAPABILITIES_KEY: Final = f"{_RESERVED}clientCapabilities"
_SERVER_KEY: Final = f"{_RESERVED}serverInfo"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

REFUSED: Final = -32000
"""Code of calls that the daemon refuses before their message is read; the revisions leave it to the server."""

_LISTS_MS: Final = 3_600_000
"""How long clients may keep the list of tools, which only another version of the daemon changes, milliseconds."""

_SERVER: Final = {"name": "edge-rag", "title": "edge-rag", "version": edge_rag.__version__}
_INSTRUCTIONS: Final = (
    "Answers questions from this box's own documents. `ask` answers with exact quotes and where they are; `search` "
    "finds passages to read yourself, `fetch` reads a document that one of them names. Say which document and page a "
    "statement comes from, and give its url."
)
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=")

Token = str | int
"""Id of a request or of the progress of one."""


class ProtocolError(Exception):
    """A message that cannot be answered by a result. Not part of the error tree: it is answered by a JSON-RPC error.

    Attributes:
        code: Code of JSON-RPC or of the protocol.
        message: The problem.
        request_id: Id of the request; None if it has none that can be read.
        modern: Whether it is a request of ``MODERN_VERSION``.
        data: Further data of the error, or None.
    """

    def __init__(
        self, code: int, message: str, request_id: Token | None = None, modern: bool = False, data: Any = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.modern = modern
        self.data = data

    def response(self) -> dict[str, Any]:
        return error_response(self.request_id, self.code, self.message, self.data)


@dataclass(frozen=True, slots=True)
class Reply:
    """A request that is answered at once.

    Attributes:
        response: The response.
        opens: Whether the request opens a connection of one of ``HANDSHAKE_VERSIONS``.
    """

    response: dict[str, Any]
    opens: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request to call a tool.

    Attributes:
        request_id: Its id.
        modern: Whether it is one of ``MODERN_VERSION``.
        tool: The tool.
        arguments: As given; the tool checks them.
        progress_token: What notifications of its progress name; None if none are wanted.
    """

    request_id: Token
    modern: bool
    tool: Tool
    arguments: Mapping[str, Any]
    progress_token: Token | None

    def response(self, value: Mapping[str, Any], text: str) -> dict[str, Any]:
        result = {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": False}
        return _response(self.request_id, self.modern, result)

    def failure(self, message: str) -> dict[str, Any]:
        return _response(
            self.request_id, self.modern, {"content": [{"type": "text", "text": message}], "isError": True}
        )

    def progress(self, amount: int, message: str) -> dict[str, Any]:
        params = {"progressToken": self.progress_token, "progress": amount, "message": message}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A notification that a request need not be answered any more.

    Attributes:
        request_id: Id of that request.
    """

    request_id: Token


class Ignored:
    """A message that asks for nothing."""


Message = Reply | ToolCall | Cancellation | Ignored


def read(data: bytes, headers: Iterable[tuple[str, str]] | None = None) -> Message:
    """Returns the request in a message.

    Args:
        headers: Headers of the HTTP request that carries it, names in lower case; None without HTTP.
    """
    try:
        body = parse_json(data)
    except UndecodableMessage:
        batch = data.lstrip()[:1] == b"["
        raise ProtocolError(
            INVALID_REQUEST if batch else PARSE_ERROR,
            "batches are not supported; send one message" if batch else "the message is not a JSON object",
        ) from None
    method, request_id, params = body.get("method"), body.get("id"), body.get("params", {})
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str) or not isinstance(params, dict):
        if "method" not in body and ("result" in body or "error" in body):
            return Ignored()  # this server asks its clients nothing, so it waits for no responses
        raise ProtocolError(INVALID_REQUEST, "the message is not a request or notification of JSON-RPC 2.0")
    if "id" not in body:
        return _notification(method, params)
    if not _is_token(request_id):
        raise ProtocolError(INVALID_REQUEST, "id must be a string or an integer")
    named = {} if headers is None else _routing(headers, request_id)
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    modern = _VERSION_KEY in meta or named.get(VERSION_HEADER) == MODERN_VERSION
    try:
        if modern:
            _check_modern(method, params, meta, None if headers is None else named)
            return _modern_request(method, request_id, params, meta)
        if (version := named.get(VERSION_HEADER)) not in (None, *HANDSHAKE_VERSIONS):
            raise _unsupported(version)
        return _request(method, request_id, params, meta)
    except ProtocolError as error:
        raise ProtocolError(error.code, error.message, request_id, modern, error.data) from None


def error_response(request_id: Token | None, code: int, message: str, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def _notification(method: str, params: Mapping[str, Any]) -> Message:
    request_id = params.get("requestId")
    return Cancellation(request_id) if method == "notifications/cancelled" and _is_token(request_id) else Ignored()


def _request(method: str, request_id: Token, params: Mapping[str, Any], meta: Mapping[str, Any]) -> Message:
    """Returns the call in a request of an earlier revision."""
    match method:
        case "initialize":
            wanted = params.get("protocolVersion")
            result: dict[str, Any] = {
                "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": _SERVER,
                "instructions": _INSTRUCTIONS,
            }
            return Reply(_response(request_id, False, result), opens=True)
        case "ping":
            return Reply(_response(request_id, False, {}))
        case "tools/list":
            return Reply(_response(request_id, False, {"tools": _tools(params)}))
        case "tools/call":
            return _tool_call(request_id, False, params, meta)
    raise _no_method(method)


def _modern_request(method: str, request_id: Token, params: Mapping[str, Any], meta: Mapping[str, Any]) -> Message:
    cached = {"ttlMs": _LISTS_MS, "cacheScope": "public"}
    match method:
        case "server/discover":
            result = {
                "supportedVersions": [MODERN_VERSION],
                "capabilities": {"tools": {}},
                "instructions": _INSTRUCTIONS,
            }
            return Reply(_response(request_id, True, result | cached))
        case "tools/list":
            return Reply(_response(request_id, True, {"tools": _tools(params)} | cached))
        case "tools/call":
            return _tool_call(request_id, True, params, meta)
    raise _no_method(method)


def _tools(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    if params.get("cursor") is not None:
        raise ProtocolError(INVALID_PARAMS, "cursor: the list of tools has one page")
    return [tool.description_json() for tool in TOOLS.values()]


def _tool_call(request_id: Token, modern: bool, params: Mapping[str, Any], meta: Mapping[str, Any]) -> ToolCall:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or name not in TOOLS:
        raise ProtocolError(INVALID_PARAMS, f"there is no tool {str(name)[:64]!r}; there are {', '.join(TOOLS)}")
    if not isinstance(arguments, dict | None):
        raise ProtocolError(INVALID_PARAMS, "arguments must be an object")
    token = meta.get("progressToken")
    return ToolCall(request_id, modern, TOOLS[name], arguments or {}, token if _is_token(token) else None)


def _check_modern(
    method: str, params: Mapping[str, Any], meta: Mapping[str, Any], named: Mapping[str, str] | None
) -> None:
    """Checks a request of ``MODERN_VERSION``, in the order in which its revision says what comes first."""
    missing = [key for key in (_VERSION_KEY, _CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(INVALID_PARAMS, f"params._meta: {' and '.join(missing)} must be there")
    version = meta[_VERSION_KEY]
    if named is not None:
        wanted = {VERSION_HEADER: version, _METHOD_HEADER: method}
        if method == "tools/call":
            wanted[_NAME_HEADER] = params.get("name")
        for header, value in wanted.items():
            if _decoded(named.get(header)) != value:
                raise ProtocolError(HEADER_MISMATCH, f"the header {header} does not say what the message says")
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"params._meta: {_VERSION_KEY} must be a string")
    if version != MODERN_VERSION:
        raise _unsupported(version)
    if not isinstance(meta[_CAPABILITIES_KEY], dict):
        raise ProtocolError(INVALID_PARAMS, f"params._meta: {_CAPABILITIES_KEY} must be an object")


def _routing(headers: Iterable[tuple[str, str]], request_id: Token) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        if name in (VERSION_HEADER, _METHOD_HEADER, _NAME_HEADER):
            if name in found:
                raise ProtocolError(HEADER_MISMATCH, f"the header {name} is there twice", request_id)
            found[name] = value
    return found


def _decoded(value: str | None) -> str | None:
    """Returns the text that a header stands for; None if it is missing or its base64 is not that of a text."""
    found = None if value is None else _SENTINEL.fullmatch(value)
    if found is None:
        return value
    try:
        text = base64.b64decode(found[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if base64.b64encode(text.encode()).decode() == found[1] else None


def _response(request_id: Token, modern: bool, result: Mapping[str, Any]) -> dict[str, Any]:
    if modern:
        result = {"resultType": "complete", **result, "_meta": {_SERVER_KEY: _SERVER}}
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def _is_token(value: object) -> TypeGuard[Token]:
    return type(value) in (str, int)


def _no_method(method: str) -> ProtocolError:
    return ProtocolError(METHOD_NOT_FOUND, f"there is no method {method[:64]!r}")


def _unsupported(version: object) -> ProtocolError:
    data = {"supported": [MODERN_VERSION, *HANDSHAKE_VERSIONS], "requested": str(version)[:64]}
    return ProtocolError(UNSUPPORTED_VERSION, "this protocol version is not supported", data=data)
