"""What messages ask for and how they are answered, without a transport, against the models of the specification."""

import base64
import json
from typing import Any

import jsonschema
import mcp_types.methods
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import InvalidRequest
from edge_rag.server.mcp import protocol
from edge_rag.server.mcp.protocol import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSION,
    Cancellation,
    Ignored,
    ProtocolError,
    Reply,
    ToolCall,
)
from edge_rag.server.mcp.tools import TOOLS

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def encoded(method: str, params: dict[str, Any] | None = None, modern: bool = False, **more: Any) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, **more}
    if params is not None or modern:
        message["params"] = {**(params or {}), **({"_meta": META} if modern else {})}
    return json.dumps(message).encode()


def headers(method: str, name: str | None = None, version: str = MODERN_VERSION) -> list[tuple[str, str]]:
    named = [("mcp-protocol-version", version), ("mcp-method", method)]
    return named if name is None else [*named, ("mcp-name", name)]


def reply(data: bytes) -> dict[str, Any]:
    found = protocol.read(data)
    assert isinstance(found, Reply)
    result: dict[str, Any] = found.response["result"]
    return result


def refused(data: bytes, sent: list[tuple[str, str]] | None = None) -> ProtocolError:
    with pytest.raises(ProtocolError) as error:
        protocol.read(data, sent)
    return error.value


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_a_reply_of_the_present_revision_is_as_it_demands(method: str) -> None:
    result = reply(encoded(method, modern=True))
    mcp_types.methods.validate_server_result(method, MODERN_VERSION, result)
    assert result["resultType"] == "complete"
    assert (result["ttlMs"] > 0, result["cacheScope"]) == (True, "public")


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_a_reply_of_an_older_revision_has_nothing_of_the_present_one(version: str) -> None:
    info = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    opened = reply(encoded("initialize", info))
    mcp_types.methods.validate_server_result("initialize", version, opened)
    assert opened["protocolVersion"] == version
    assert reply(encoded("ping")) == {}
    listed = reply(encoded("tools/list"))
    mcp_types.methods.validate_server_result("tools/list", version, listed)
    assert set(listed) == {"tools"}


def test_a_version_that_is_not_known_is_answered_with_one_that_is() -> None:
    assert reply(encoded("initialize", {"protocolVersion": "2030-01-01"}))["protocolVersion"] == HANDSHAKE_VERSIONS[0]
    later = {**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    error = refused(encoded("tools/list", {"_meta": later}))
    assert (error.code, error.data["requested"]) == (protocol.UNSUPPORTED_VERSION, "2030-01-01")
    assert MODERN_VERSION in error.data["supported"]


def test_the_revision_is_that_of_the_message_and_not_of_the_connection() -> None:
    old, new = encoded("tools/call", {"name": "search"}), encoded("tools/call", {"name": "search"}, modern=True)
    for data, modern in ((old, False), (new, True), (old, False)):
        found = protocol.read(data)
        assert isinstance(found, ToolCall)
        assert (found.modern, "resultType" in found.response({}, "{}")["result"]) == (modern, modern)
        assert ("resultType" in found.failure("no")["result"]) is modern


def test_headers_repeat_the_message_or_it_is_refused() -> None:
    data = encoded("tools/call", {"name": "search"}, modern=True)
    name = "=?base64?" + base64.b64encode(b"search").decode() + "?="
    for sent in (headers("tools/call", "search"), headers("tools/call", name)):
        assert isinstance(protocol.read(data, sent), ToolCall)
    right = headers("tools/call", "search")
    for wrong in (
        headers("tools/list", "search"),
        headers("tools/call", "ask"),
        headers("tools/call"),
        headers("tools/call", "=?base64?////?="),
        headers("tools/call", "search", HANDSHAKE_VERSIONS[0]),
        [*right, ("mcp-name", "search")],
        right[1:],
        [],
    ):
        error = refused(data, wrong)
        assert (error.code, error.request_id) == (protocol.HEADER_MISMATCH, 1), wrong


@pytest.mark.parametrize("missing", META)
def test_what_each_request_must_carry_is_named(missing: str) -> None:
    meta = {key: value for key, value in META.items() if key != missing}
    error = refused(encoded("tools/list", {"_meta": meta}), headers("tools/list"))
    assert error.code == protocol.INVALID_PARAMS
    assert missing in error.message


@pytest.mark.parametrize("method", ["initialize", "ping", "resources/list", "prompts/list", "logging/setLevel"])
def test_methods_that_the_present_revision_or_this_server_has_not_are_not_found(method: str) -> None:
    assert refused(encoded(method, modern=True)).code == protocol.METHOD_NOT_FOUND


def test_a_notification_is_never_answered() -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "7"}}
    assert protocol.read(json.dumps(cancel).encode()) == Cancellation("7")
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/unheard-of"):
        assert isinstance(protocol.read(json.dumps({"jsonrpc": "2.0", "method": method}).encode()), Ignored)


def test_progress_is_wanted_by_its_token_only() -> None:
    for token in ("a", 7, 0, ""):
        found = protocol.read(encoded("tools/call", {"name": "ask", "_meta": {"progressToken": token}}))
        assert isinstance(found, ToolCall)
        params = found.progress(3, "abc")["params"]
        assert params == {"progressToken": token, "progress": 3, "message": "abc"}
    for none in (None, True, 1.5, ["a"]):
        found = protocol.read(encoded("tools/call", {"name": "ask", "_meta": {"progressToken": none}}))
        assert isinstance(found, ToolCall)
        assert found.progress_token is None


@given(st.binary(max_size=64) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_message_or_a_named_error(data: bytes) -> None:
    try:
        protocol.read(data)
    except ProtocolError as error:
        response = error.response()
        assert (response["jsonrpc"], response["error"]["code"] < 0) == ("2.0", True)


@given(
    JSON_VALUES,
    JSON_VALUES,
    JSON_VALUES,
    st.sampled_from(["tools/call", "tools/list", "initialize", "server/discover", "notifications/cancelled"]),
)
def test_any_params_are_a_request_or_an_error_with_its_id(params: Any, meta: Any, request_id: Any, method: str) -> None:
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    if isinstance(params, dict):
        params["_meta"] = meta
    try:
        found = protocol.read(json.dumps(body).encode(), headers(method))
    except ProtocolError as error:
        assert error.request_id in (None, request_id)
    else:
        assert not isinstance(found, Ignored)


def test_schemas_are_valid_flat_and_have_a_description_for_every_argument() -> None:
    for tool in TOOLS.values():
        described = tool.description_json()
        for schema in (described["inputSchema"], described["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert not {"$ref", "$defs", "anyOf", "oneOf"} & set(json.dumps(schema).replace('"', " ").split())
        assert all(schema["description"] for schema in described["inputSchema"]["properties"].values())
        assert described["annotations"]["readOnlyHint"] is True


@given(
    st.sampled_from(sorted(TOOLS)),
    st.dictionaries(
        st.sampled_from(sorted({name for tool in TOOLS.values() for name in tool.arguments} | {"other"})),
        JSON_VALUES | st.integers(0, 200) | st.sampled_from(["default", "quote", "x"]),
    ),
)
def test_what_a_tool_takes_is_what_its_schema_says(name: str, given_arguments: dict[str, Any]) -> None:
    tool = TOOLS[name]
    without_null = {
        key: value for key, value in given_arguments.items() if value is not None or key not in tool.arguments
    }
    validator = jsonschema.Draft202012Validator(tool.description_json()["inputSchema"])
    try:
        taken = tool.checked(given_arguments)
    except InvalidRequest:
        assert not validator.is_valid(without_null)
    else:
        assert validator.is_valid(without_null)
        assert set(taken) == set(tool.arguments)
