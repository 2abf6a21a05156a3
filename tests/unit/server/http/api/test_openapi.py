"""The OpenAPI document: whole, valid, and of the same types as the routes."""

from __future__ import annotations

import re
from typing import Any

from jsonschema import Draft202012Validator

from edge_rag.core.answer import Citation, Finished, FinishReason, PassagesFound, Usage
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import FoundPassage, Passage, RankedPassage
from edge_rag.core.query import AnswerMode
from edge_rag.core.shapes.encoder import encode
from edge_rag.server.http.api.openapi import ENDPOINTS, document
from edge_rag.server.http.api.schema import Schemas
from edge_rag.server.http.routes import ROUTES


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if "$ref" in value else set()
        return found.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_each_json_route_is_in_the_document_and_nothing_else_is() -> None:
    served = {
        (route.method, re.sub(r":\w+\}", "}", route.path))
        for route in ROUTES
        if (route.path.startswith("/api/v1/") and "/uploads" not in route.path) or route.path in ("/healthz", "/readyz")
    }
    assert set(operations()) == served


def test_every_operation_has_a_name_of_its_own_a_summary_and_described_parameters() -> None:
    names = [operation["operationId"] for operation in operations().values()]
    assert len(names) == len(set(names))
    for place, operation in operations().items():
        assert operation["summary"].endswith("."), place
        assert all(parameter["description"] for parameter in operation.get("parameters", ())), place
        in_path = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", place[1]))


def test_every_schema_is_one_and_every_reference_leads_to_one() -> None:
    schemas = document()["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert references(document()) == {f"#/components/schemas/{name}" for name in schemas}


def test_every_member_of_a_body_and_of_a_response_is_described() -> None:
    for name, schema in document()["components"]["schemas"].items():
        assert schema["description"], name
        undescribed = [member for member, each in schema["properties"].items() if "description" not in each]
        documented = any("description" in each for each in schema["properties"].values())
        assert not (documented and undescribed), f"{name}: {undescribed}"


def test_a_role_is_told_where_one_is_needed() -> None:
    for endpoint in ENDPOINTS:
        operation = operations()[endpoint.method, re.sub(r":\w+\}", "}", endpoint.path)]
        role = endpoint.operation.role
        assert (role is not None) == ("Needs the role" in operation.get("description", ""))


def test_what_is_encoded_is_valid_under_the_schema_of_its_type() -> None:
    passage = Passage(ChunkId(7), DocumentId("d"), "a.md", 2, 10, 14, "text", ("Heading",), {"year": 2020.0})
    values: list[Any] = [
        PassagesFound((RankedPassage(passage, float("nan"), ()),), 0.5, AnswerMode.FREE),
        Citation(0, "a.md", None, 0, 1, "t", 0, 1),
        Finished(FinishReason.LENGTH, Usage(), (), 0.5),
    ]
    schemas = Schemas(requests=False)
    for value in values:
        whole = {**schemas.of(type(value)), "components": {"schemas": schemas.components}}
        assert list(Draft202012Validator(whole).iter_errors(encode(value))) == []
        broken = {**encode(value), next(iter(encode(value))): object()}
        assert list(Draft202012Validator(whole).iter_errors(broken))
    assert {FoundPassage.__name__, Finished.__name__} <= set(schemas.components)
