"""The description of our own interface is valid, complete, and true of what is answered."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Route
from starlette.testclient import TestClient

from sparkbolt.faces.ui.rest import PREFIX, rest_routes
from tests.unit.control.fake import FakeOperator


@pytest.fixture
def description(client: TestClient) -> Any:
    return client.get("/api/v2/openapi.json").json()


@pytest.mark.slow
def test_openapi_description_is_valid(description: Any) -> None:
    OpenAPIV31SpecValidator(description).validate()


def test_openapi_description_has_every_route_and_no_other(description: Any) -> None:
    routed = {
        (route.path, method.lower())
        for route in rest_routes()
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD" and not route.path.endswith("openapi.json")
    }
    described = {(path, method) for path, item in description["paths"].items() for method in item}
    assert described == routed
    assert all(path.startswith(PREFIX) for path, _ in described)


def test_only_changes_need_the_token(description: Any) -> None:
    for item in description["paths"].values():
        for method, operation in item.items():
            assert ("security" in operation) == (method == "post")


ANSWERED = {
    "/topologies": "topologies",
    "/topologies/{topology}": "topologies/orders",
    "/topologies/{topology}/series": "topologies/orders/series",
    "/topologies/{topology}/micro-batches": "topologies/orders/micro-batches",
    "/topologies/{topology}/open-trees": "topologies/orders/open-trees",
    "/topologies/{topology}/stories": "topologies/orders/stories",
    "/topologies/{topology}/windows": "topologies/orders/windows",
    "/topologies/{topology}/lag": "topologies/orders/lag",
    "/topologies/{topology}/lag-secs": "topologies/orders/lag-secs",
    "/topologies/{topology}/metrics": "topologies/orders/metrics",
    "/topologies/{topology}/log": "topologies/orders/log",
    "/topologies/{topology}/state": "topologies/orders/state",
    "/topologies/{topology}/state/{component}": "topologies/orders/state/revenue",
    "/topologies/{topology}/settings": "topologies/orders/settings",
    "/topologies/{topology}/peek/{component}": "topologies/orders/peek/enrich",
}


@pytest.mark.parametrize("path", ANSWERED)
def test_answers_match_their_openapi_description(client: TestClient, description: Any, path: str) -> None:
    operation = description["paths"][PREFIX + path]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    answer = client.get(f"{PREFIX}/{ANSWERED[path]}").json()
    whole = {**schema, "components": description["components"]}
    problems = [f"{list(error.path)}: {error.message[:200]}" for error in OAS31Validator(whole).iter_errors(answer)]
    assert problems == []


def test_a_change_over_http_needs_what_is_documented(
    writer: TestClient, operator: FakeOperator, description: Any
) -> None:
    for path, item in description["paths"].items():
        body = item.get("post", {}).get("requestBody")
        if body and body["required"]:
            assert writer.post(path.replace("{topology}", "orders"), json={}).status_code == 400, path
    assert operator.asked == []
