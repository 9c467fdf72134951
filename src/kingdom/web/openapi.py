"""Complete the OpenAPI document with what holds for every operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kingdom.web.middleware import CHANGING_METHODS, IDEMPOTENCY_HEADER, KEY_PATTERN
from kingdom.web.security.guard import OPEN_PATHS, OPEN_PREFIX
from kingdom.web.security.roles import role_of

if TYPE_CHECKING:
    from fastapi import FastAPI


_MAX_EXAMPLE_DEPTH: Final = 12
_EXAMPLE_BY_TYPE: Final = {"string": "…", "integer": 1, "number": 1.0, "boolean": False, "null": None}
_EXAMPLE_BY_FORMAT: Final = {"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "binary": ""}


class SchemaExamples:
    """Creates examples of JSON schemas from the examples of their fields. ``components`` are the named schemas."""

    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components

    def of(self, schema: dict[str, Any], deep: int = 0) -> Any:
        """Return an example of a schema."""
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            return self.of({**self._components[name], **{k: v for k, v in schema.items() if k == "examples"}}, deep)
        for key in ("example", "const", "default"):
            if key in schema and not (key == "default" and schema.get("examples")):
                return schema[key]
        if schema.get("examples"):
            return schema["examples"][0]
        if "enum" in schema:
            return schema["enum"][0]
        return self._by_kind(schema, deep)

    def _by_kind(self, schema: dict[str, Any], deep: int) -> Any:
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                parts = [part for part in schema[key] if part.get("type") != "null"]
                return self.of(parts[0], deep) if parts else None
        kind = schema.get("type")
        if kind == "array":
            return [] if deep > _MAX_EXAMPLE_DEPTH else [self.of(schema.get("items", {}), deep + 1)]
        if kind == "object" or "properties" in schema:
            return self._object(schema, deep)
        return _EXAMPLE_BY_FORMAT.get(schema.get("format", ""), _EXAMPLE_BY_TYPE.get(str(kind), {}))

    def _object(self, schema: dict[str, Any], deep: int) -> dict[str, Any]:
        if deep > _MAX_EXAMPLE_DEPTH:
            return {}
        return {name: self.of(part, deep + 1) for name, part in schema.get("properties", {}).items()}


_JSON_TYPE: Final = "application/json"
_OPENAPI_METHODS: Final = ("get", "post", "put", "patch", "delete")
_SECURITY_SCHEME: Final = "token"
_OPEN_PATHS: Final = (*OPEN_PATHS, OPEN_PREFIX)  # without a token
_FAILED_REF: Final = "#/components/schemas/Failed"
_ERRORS: Final = {
    "401": ("The token is missing or wrong.", "SYS_UNAUTHORIZED"),
    "403": ("Your role does not allow it; see `details`. Or Host, Origin or CSRF token is not accepted.", "SYS_ROLE"),
    "404": ("Not found.", "WFL_NOT_FOUND"),
    "409": ("Conflict: wrong state, name already taken, or item in use.", "WFL_ILLEGAL_TRANSITION"),
    "413": ("The request is too large.", "SYS_TOO_LARGE"),
    "422": ("The request is invalid; see `details`.", "SYS_INVALID"),
    "429": ("Too many requests; retry after `Retry-After` seconds.", "SYS_TOO_OFTEN"),
    "500": ("Internal server error.", "SYS_INTERNAL"),
    "503": ("The store or a part of the court is unavailable.", "SYS_STORE"),
}
ROLE_KEY: Final = "x-role"
"""The key of an operation that says which role it needs."""
_DESCRIPTION: Final = """\
Every response is an envelope: `{"success": true, "data": …, "timestamp": …}`, or for an error
`{"success": false, "error": {"code": …, "message": …, "details": […]}, "timestamp": …}`. The prefix of a code names its
area: `GIT_`, `MCP_`, `TPL_`, `WFL_`, `MOD_` (changes of a plan), `SYS_`.

Lists are paged: `limit` is 1 to 100; `cursor` is the `nextCursor` of the previous page. A null `nextCursor` marks the
last page.

Requests carry `Authorization: Bearer TOKEN`: the token in `state/web/token` of the home, or that of a person
(`kingdom token add`). A person has a role; `x-role` says which role an operation needs, and each role includes those
before it: `look`, `answer`, `operate`, `own`. What a person changes is signed with their name. GET responses have an
`ETag`; with `If-None-Match` an unchanged response is 304. A request with an `Idempotency-Key` is executed once, however
often it is sent within a day.
"""
_TAGS: Final = {
    "inbox": "What needs a person.",
    "repositories": "Repositories that workflows work on.",
    "MCP servers": "MCP servers for the agents of workflows.",
    "templates": "Templates of workflows.",
    "court": "Events, tasks, messages, questions, generals and statistics of the court.",
    "bus": "Streams and their dead letters.",
    "webhooks": "Webhook endpoints. Each has its own secret.",
    "live": "Live events.",
    "search": "One search over everything.",
    "people": "Access tokens of people, each with a name and a role.",
    "health": "Liveness, readiness, metrics and health.",
    "workflows": "Create, run, change and inspect workflows.",
}


def complete_openapi(app: FastAPI) -> None:
    """Complete the OpenAPI document of an application when it is first requested."""
    made = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(_renamed(made()))
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Call a model ``…Body`` in requests and ``…Fields`` in responses if its limits make two schemas of it."""
    text = re.sub(r"\b(\w+)Fields-Input\b", r"\1Body", json.dumps(document)).replace("Fields-Output", "Fields")
    renamed: dict[str, Any] = json.loads(text)
    for name, schema in renamed["components"]["schemas"].items():
        if name.endswith("Body"):
            schema["title"] = name
    return renamed


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Add what holds for all operations: errors, security, headers, examples."""
    components = document.setdefault("components", {})
    document["info"]["description"] = _DESCRIPTION
    components["securitySchemes"] = {
        _SECURITY_SCHEME: {"type": "http", "scheme": "bearer", "description": "The server's access token."}
    }
    components["responses"] = _error_responses()
    document["security"] = [{_SECURITY_SCHEME: []}]
    examples = SchemaExamples(components.get("schemas", {}))
    used: set[str] = set()
    for path, method, operation in _operations(document):
        used.update(operation.get("tags", ()))
        _add_role(path, method, operation)
        _add_errors(path, method, operation)
        if method.upper() in CHANGING_METHODS and path.startswith("/api/"):
            _add_parameter(
                operation,
                IDEMPOTENCY_HEADER,
                {"type": "string", "pattern": KEY_PATTERN},
                "Execute the request once per key.",
            )
        if method == "get" and path.startswith("/api/") and _JSON_TYPE in _content(operation, "200"):
            _add_etag(operation)
        _add_examples(operation, examples)
    document["tags"] = [{"name": name, "description": words} for name, words in _TAGS.items() if name in used]
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in _OPENAPI_METHODS:
                yield path, method, operation


def _content(operation: dict[str, Any], status: str) -> dict[str, Any]:
    found: dict[str, Any] = operation.get("responses", {}).get(status, {}).get("content", {})
    return found


def _add_role(path: str, method: str, operation: dict[str, Any]) -> None:
    """Say which role an operation needs. Reading needs `look`, which every token has."""
    if path.startswith(_OPEN_PATHS):
        return
    role = role_of(operation["operationId"], method.upper())
    operation[ROLE_KEY] = role
    if role != "look":
        operation["description"] = f"{operation.get('description', '')}\n\nNeeds the role `{role}`.".strip()


def _add_errors(path: str, method: str, operation: dict[str, Any]) -> None:
    statuses = ["500"]
    if path.startswith(_OPEN_PATHS):
        operation["security"] = []
    else:
        statuses += ["401", "403", "429"]
    if "{" in path:
        statuses.append("404")
    if method != "get":
        statuses += ["409", "413"]
    if operation.get("parameters") or "requestBody" in operation:
        statuses.append("422")
    responses = operation.setdefault("responses", {})
    for status, answer in responses.items():
        if status[0] in "45":  # otherwise of the type that the operation returns, such as a stream
            answer["content"] = {_JSON_TYPE: {"schema": {"$ref": _FAILED_REF}}}
    for status in statuses:
        if status in responses:
            continue
        responses[status] = {"$ref": f"#/components/responses/{_response_name(status)}"}
    operation["responses"] = dict(sorted(responses.items()))


def _error_responses() -> dict[str, Any]:
    """Return the error responses by the names that operations refer to."""
    made = {}
    for status, (words, code) in _ERRORS.items():
        error = {"code": code, "message": words, "details": []}
        example = {"success": False, "error": error, "timestamp": "2026-01-31T12:00:00Z"}
        content = {_JSON_TYPE: {"schema": {"$ref": _FAILED_REF}, "example": example}}
        made[_response_name(status)] = {"description": words, "content": content}
    return made


def _response_name(status: str) -> str:
    return f"Error{status}"


def _add_parameter(operation: dict[str, Any], name: str, schema: dict[str, Any], words: str) -> None:
    operation.setdefault("parameters", []).append(
        {"name": name, "in": "header", "required": False, "schema": schema, "description": words}
    )


def _add_etag(operation: dict[str, Any]) -> None:
    _add_parameter(operation, "If-None-Match", {"type": "string"}, "`ETag` of the response you have.")
    tag = {"schema": {"type": "string"}, "description": "Changes with the content."}
    operation["responses"]["200"].setdefault("headers", {})["ETag"] = tag
    operation["responses"]["304"] = {"description": "Not modified.", "headers": {"ETag": tag}}


def _add_examples(operation: dict[str, Any], examples: SchemaExamples) -> None:
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for media in (body.get("content", {}).get(_JSON_TYPE) for body in bodies):
        if media and "example" not in media and "examples" not in media:
            media["example"] = examples.of(media.get("schema", {}))
