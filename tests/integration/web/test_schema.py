"""The whole interface against its own OpenAPI document: generated requests, valid and not, to every operation.

No answer is a 500, every error is in the envelope, every answer is as the document says.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kingdom.web.envelope import Failed
from tests.integration.court.test_sentinel_reception import SECRETS, WEBHOOKS
from tests.support.openapi import operations
from tests.support.repositories import Remote
from tests.support.searching import FACTOR, examples
from tests.support.web import Web, web_app
from tests.support.web_work import scripted

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Requests to each operation: in `make walks` 200, of which 40 are wrong (they take twice as long to make up). Where all
# valid requests are the same, 20.
VALID, WRONG, SAME = (2, 1, 1) if FACTOR == 1 else (160, 40, 20)
# Making up a plan takes up to a second each; three operations take the same one, the fourth changes of one.
PLANS = {"createTemplate", "updateTemplate", "convertTemplate", "modifyWorkflow"}
# They take nothing that could be wrong. The fixture checks this list against the document.
NEVER_WRONG = {
    "checkAlive", "checkReady", "getBudget", "getCourt", "getStats", "getStreamProtocol", "listEventTypes",
    "listGenerals", "listInbox", "listMuted", "listQuestions", "listSessions", "listSettings", "listTokens",
    "readHealth", "readMetrics", "readSession",
}  # fmt: skip
FEW = examples(1)
QUIET = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Ground(NamedTuple):
    """The application, in a loop of its own, and ids of things that are there."""

    runner: asyncio.Runner
    web: Web
    schema: Any
    ids: dict[str, str]

    def call(self, case: Case[Any], *, signed: bool) -> httpx.Response:
        """Send a request; with ``signed`` a webhook proves who sends it."""
        given = case.as_transport_kwargs(base_url="http://127.0.0.1")
        body = given.get("data")
        given = {name: value for name, value in given.items() if name in ("method", "url", "params", "headers", "json")}
        request = self.web.client.build_request(**given, content=body)
        if signed and request.url.path.startswith("/hooks/"):
            request.headers.update(_signatures(request.url.path, request.read()))
        return self.runner.run(self.web.client.send(request))


def _signatures(path: str, body: bytes) -> dict[str, str]:
    if path.startswith("/hooks/github"):
        digest = hmac.new(b"g-secret", body, hashlib.sha256).hexdigest()
        return {
            "X-Hub-Signature-256": f"sha256={digest}",
            "X-GitHub-Event": "issue_comment",
            "X-GitHub-Delivery": digest,
        }
    return {"X-Kingdom-Token": "j-secret" if path.startswith("/hooks/jira") else "c-secret"}


class FirstMessages:
    """ASGI middleware for who reads only the beginning of an endless answer, and goes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/api/stream":
            await self._app(scope, receive, send)
            return
        begun, streams = asyncio.Event(), False

        async def received() -> Message:
            if streams:
                await begun.wait()
                return {"type": "http.disconnect"}
            return await receive()

        async def sent(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                streams = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            await send(message)
            if message.get("more_body"):
                begun.set()

        await self._app(scope, received, sent)
        if streams:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def requests() -> list[Any]:
    """By operation, and whether they are valid; what deletes comes last: the others would find nothing."""
    return [
        pytest.param(operation.name, mode, id=f"{operation.name} {mode.value}")
        for operation in sorted(operations(), key=lambda one: one.method == "delete")
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if mode is GenerationMode.POSITIVE or operation.name not in NEVER_WRONG
    ]


def _can_be_wrong(operation: dict[str, Any]) -> bool:
    taken = [one["name"] for one in operation.get("parameters", ()) if one["name"] != "If-None-Match"]  # takes anything
    return bool(taken) or "requestBody" in operation


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("schema")
    stack = AsyncExitStack()
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as environment:
        for name, value in SECRETS.items():
            environment.setenv(name, value)
        web = runner.run(stack.enter_async_context(web_app(folder / "home", engine=True)))
        web.app.add_middleware(FirstMessages)
        (web.context.court.home.config / "sentinel.yaml").write_text(json.dumps({"webhooks": WEBHOOKS}))
        try:
            document = web.app.openapi()
            described = [operation for path in document["paths"].values() for operation in path.values()]
            assert {one["operationId"] for one in described if not _can_be_wrong(one)} == NEVER_WRONG
            schema = schemathesis.openapi.from_dict(_without_token(document))
            yield Ground(runner, web, schema, runner.run(_furnish(web, folder)))
        finally:
            runner.run(stack.aclose())


def _without_token(document: dict[str, Any]) -> dict[str, Any]:
    """The client sends the token with every request: requests without one are tested elsewhere."""
    document = deepcopy(document)
    document.pop("security")
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    return document


async def _furnish(web: Web, folder: Path) -> dict[str, str]:
    """One of each, so that not every request ends in a 404."""
    remote = Remote(folder / "remote")
    remote.commit({"README": "hello\n"})

    async def made(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await web.client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    git = await made("/api/gits", {"name": "web", "url": remote.url})
    server = await made("/api/mcp-servers", {"name": "tracker", "command": ["true"], "env": {"A": "${HOME}"}})
    work = scripted("fix")
    refs = {"gitRefs": [{"gitId": git["id"]}], "mcpServerRefs": [{"mcpServerId": server["id"]}]}
    template = await made("/api/workflow-templates", {"name": "fix", "works": [work], **refs})
    workflow = await made("/api/workflows", {"templateId": template["id"], "issueKey": "WEB-1"})
    return {
        "gitId": git["id"],
        "mcpServerId": server["id"],
        "templateId": template["id"],
        "workflowId": workflow["id"],
        "bus": "court",
        "stream": "events",
        "name": "ci",
    }


@pytest.mark.search
@pytest.mark.parametrize(("name", "mode"), requests())
def test_an_operation_is_as_the_document_says(ground: Ground, name: str, mode: GenerationMode) -> None:
    operation = ground.schema.find_operation_by_id(name)
    count = WRONG if mode is GenerationMode.NEGATIVE else VALID if _can_be_wrong(operation.definition.raw) else SAME
    count = FEW if name in PLANS else count
    try:
        _run(ground, name, operation, mode, count)
    except (Unsatisfiable, httpx.InvalidURL):
        assert mode is GenerationMode.NEGATIVE  # it takes nothing that could be wrong, or nothing that can be sent


def _run(ground: Ground, name: str, operation: Any, mode: GenerationMode, count: int) -> None:
    @settings(QUIET, max_examples=count)
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def check(case: Case[Any], known: bool) -> None:
        if known and mode is GenerationMode.POSITIVE:
            there = {name: ground.ids[name] for name in case.path_parameters or {} if name in ground.ids}
            case.path_parameters = {**(case.path_parameters or {}), **there}
        answer = ground.call(case, signed=known)
        checks = [*CHECKS, negative_data_rejection] if mode is GenerationMode.NEGATIVE else CHECKS
        case.validate_response(answer, checks=checks)
        if name == "streamEvents" and answer.status_code == 200:
            assert '"type":"subscribed"' in answer.text
        if answer.status_code >= 400:
            told = Failed.model_validate(answer.json())
            assert told.error.code.startswith(("GIT_", "MCP_", "TPL_", "WFL_", "MOD_", "SYS_")), told
            assert told.error.message

    check()
