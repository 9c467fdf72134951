"""The OpenAPI document is complete, and the page made from it is up to date."""

from __future__ import annotations

import runpy

import pytest

from kingdom.web.openapi import SchemaExamples
from tests.support.openapi import PAGE, document, operations
from tests.support.pages import ROOT


def test_the_page_of_the_api_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "openapi"))["page"]
    assert PAGE.read_text("utf-8") == page(document()), "run .venv/bin/python scripts/openapi"


def test_the_page_has_every_operation() -> None:
    documented = {
        (method, path, operation["operationId"])
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations()) == documented


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation.name for operation in operations()]
    assert len(set(names)) == len(names)
    assert all(name[0].islower() and name.isalnum() for name in names)


@pytest.mark.parametrize(
    ("path", "method"), [pytest.param(path, method, id=f"{method} {path}") for method, path, _ in operations()]
)
def test_an_operation_says_what_it_does_with_examples_and_errors(path: str, method: str) -> None:
    operation = document()["paths"][path][method]
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for media in (body.get("content", {}).get("application/json") for body in bodies):
        assert media is None or "example" in media or "examples" in media
    errors = [answer for status, answer in operation["responses"].items() if status[0] in "45" and "content" in answer]
    assert all(answer["content"].keys() == {"application/json"} for answer in errors), "the one envelope"
    assert "500" in operation["responses"]
    if "{" in path:
        assert "404" in operation["responses"]
    if path.startswith("/api/"):
        assert {"401", "403", "429"} <= operation["responses"].keys()
    if method == "post" and path.startswith("/api/"):
        assert "Idempotency-Key" in [one["name"] for one in operation["parameters"]]


def test_an_example_is_made_of_the_examples_of_its_parts() -> None:
    components = {"Name": {"type": "string", "examples": ["web"]}, "Kind": {"enum": ["a", "b"]}}
    schema = {
        "type": "object",
        "properties": {
            "name": {"$ref": "#/components/schemas/Name"},
            "kinds": {"type": "array", "items": {"$ref": "#/components/schemas/Kind"}},
            "at": {"type": "string", "format": "date-time"},
            "more": {"anyOf": [{"type": "null"}, {"type": "integer", "default": 3}]},
            "fixed": {"const": True},
            "anything": {},
        },
    }
    assert SchemaExamples(components).of(schema) == {
        "name": "web",
        "kinds": ["a"],
        "at": "2026-01-31T12:00:00Z",
        "more": 3,
        "fixed": True,
        "anything": {},
    }


def test_an_example_of_what_contains_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    assert "next" in SchemaExamples({"Node": node}).of({"$ref": "#/components/schemas/Node"})


def test_a_model_of_a_plan_has_a_schema_for_requests_and_one_for_responses() -> None:
    schemas = document()["components"]["schemas"]
    for name in ("Template", "Work", "Task", "GitRef", "McpServerRef"):
        body, shown = schemas[f"{name}Body"], schemas[f"{name}Fields"]
        assert (body["title"], shown["title"]) == (f"{name}Body", f"{name}Fields")
        assert body["properties"].keys() == shown["properties"].keys()
    assert not [name for name in schemas if "-" in name]
    assert schemas["WorkBody"]["properties"]["tasks"]["items"]["$ref"].endswith("/TaskBody")
    assert schemas["WorkFields"]["properties"]["tasks"]["items"]["$ref"].endswith("/TaskFields")
