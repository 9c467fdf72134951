"""Markup in every text of the API, and ``..`` in every path: refused, not found, or given back as what it is, text."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.web import TOKEN, Web, raw_request, web_app

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>"
OUTWARDS = ("..", "../../secret.json", "..\\..\\secret.json", "\0", "%2e%2e%2fsecret.json", "\ufffd\ufffd", "-rf", "~")
ENDLESS = ("/api/stream",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "secret.json").write_text('{"secret": "must not be read"}')
    root = folder / "root"
    root.mkdir()
    async with web_app(root, court=True) as found:
        yield found


def operations(web: Web) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in web.app.openapi()["paths"].items():
        if path not in ENDLESS:
            yield from ((method.upper(), path, operation) for method, operation in methods.items())


async def test_no_path_parameter_leads_out_of_a_folder(web: Web) -> None:
    """Each of the document, with each way to write ``..``, as a server hands it over."""
    tried = 0
    for method, path, _ in operations(web):
        names = [part for part in path.split("/") if part.startswith("{")]
        for name, outwards in itertools.product(names, OUTWARDS):
            target = path.replace(name, outwards)
            for other in names:
                target = target.replace(other, "x")
            status, headers, body = await raw(web, method, target, b"{}")
            assert 400 <= status < 500, (method, target, status, body)
            assert headers[b"content-type"] == b"application/json"
            assert json.loads(body)["error"]["code"]
            assert b"must not be read" not in body
            tried += 1
    assert tried > 100


async def test_markup_in_every_text_is_answered_as_json_that_no_browser_takes_for_a_page(web: Web) -> None:
    schemas = web.app.openapi()["components"]["schemas"]
    tried = 0
    for method, path, operation in operations(web):
        target = "/".join(MARKUP.replace("/", "") if part.startswith("{") else part for part in path.split("/"))
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        body = json.dumps(_filled(content.get("schema", {}), schemas)).encode()
        status, headers, answer = await raw(web, method, target, body)
        assert status < 500, (method, target, answer)
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert not headers.get(b"content-type", b"").startswith((b"text/html", b"image/svg", b"text/xml")), path
        assert b"script-src" not in headers[b"content-security-policy"], "nothing but a page may run anything"
        tried += 1
    assert tried > 20


async def test_markup_that_was_taken_is_given_back_as_text(web: Web) -> None:
    made = await web.client.post("/api/events", json={"type": "test.markup", "payload": {"title": MARKUP}})
    assert made.status_code < 300, made.text
    listed = await web.client.get("/api/events")
    assert listed.headers["Content-Type"] == "application/json"
    assert listed.headers["X-Content-Type-Options"] == "nosniff"
    assert MARKUP in json.dumps(listed.json())


def _filled(schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0) -> Any:
    """A document of a schema with markup in every text."""
    if "$ref" in schema:
        return _filled(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _filled(schema[choice][0], schemas, depth + 1)
    if depth > 12:
        return None
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _filled(field, schemas, depth + 1) for name, field in fields.items()} or {MARKUP: MARKUP}
        case "array":
            return [_filled(schema.get("items", {}), schemas, depth + 1)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return MARKUP


async def raw(web: Web, method: str, path: str, body: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    headers = (
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {TOKEN}".encode()),
        (b"accept", b"text/html"),
        (b"content-type", b"application/json"),
    )
    return await raw_request(web.app, method, path, headers, body)
