"""The OpenAPI document has every route, and describes what it takes and returns."""

import re
from typing import Any

from edge_rag.server.http.api.openapi import ENDPOINTS, document
from edge_rag.server.http.routes import ROUTES


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def test_each_json_route_is_in_the_document_and_nothing_else_is() -> None:
    served = {
        (route.method, re.sub(r":\w+\}", "}", route.path))
        for route in ROUTES
        if (route.path.startswith("/api/v1/") and "/uploads" not in route.path) or route.path in ("/healthz", "/readyz")
    }
    assert set(operations()) == served


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
