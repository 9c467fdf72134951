"""The HTTP interface on a store with many workflows, beside the same on an empty one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.stats import percentile

TITLE = "the HTTP interface"
_FULL, _EMPTY = "many workflows", "empty store"
_STEPS = {
    "list": "Listing 50 workflows",
    "status": "Listing those in one state",
    "search": "Searching by words",
    "miss": "Searching for what is not there",
    "get": "Reading one workflow",
    "create": "Making a workflow",
}
_WARM_UP = 20
_AT_ONCE = 500  # workflows that are stored in one transaction


def api(context: Context) -> list[Table]:
    folder = context.directory("web-api")
    many, requests = context.pick(2_000, 10_000), context.pick(100, 500)
    outcomes = context.race(
        Contestant(_FULL, partial(_measure, folder, many, requests), f"{many:,} workflows of 3 works", timeout=300.0),
        Contestant(_EMPTY, partial(_measure, folder, 0, requests), "lists are empty"),
        reps=min(context.reps, 3),
    )
    remark = f"{requests} requests one after the other over loopback, the client in the process of the server"
    return [
        Table(
            f"{words}, {part}",
            "ms",
            outcomes,
            metric=f"{name}.{part}",
            bars=_bars(name, part),
            higher_is_better=False,
            remarks=(remark,),
        )
        for name, words in _STEPS.items()
        for part in ("p50", "p99")
    ]


def _bars(name: str, part: str) -> dict[str, list[Bar]]:
    if part == "p99":
        return {_FULL: [Bar("<", 50.0)]}
    return {_FULL: [Bar("<=", 2.0, of=_EMPTY)]} if name in ("list", "status") else {}


async def _measure(folder: Path, many: int, requests: int) -> Figures:
    import httpx

    from kingdom.web.app import create_app
    from kingdom.web.bootstrap import open_context
    from kingdom.web.server import serve
    from kingdom.web.settings import WebSettings

    token, root = "t" * 32, folder / uuid4().hex
    settings = WebSettings(port=0, requests_per_second=1e6)
    async with open_context(root, settings, token, engine=False) as context:
        template = await fill_workflows(context, many)
        app = create_app(context, pages=False)
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            serve(app, context) as running,
            httpx.AsyncClient(base_url=running.url, headers=headers, trust_env=False) as client,
        ):
            figures: Figures = {}
            for name, ask in _questions(client, many, template).items():
                taken = await _times(ask, requests)
                figures |= {f"{name}.p{percent}": percentile(taken, percent) for percent in (50, 99)}
            return figures


def _questions(client: Any, many: int, template: str) -> dict[str, Callable[[int], Awaitable[Any]]]:
    made: list[str] = []

    async def create(number: int) -> Any:
        answer = await client.post("/api/workflows", json={"templateId": template, "name": f"new {number}"})
        made.append(answer.json()["data"]["id"])
        return answer

    async def get(number: int) -> Any:
        known = f"wf-{number * 17 % many:06}" if many else made[number % len(made)]
        return await client.get(f"/api/workflows/{known}")

    return {
        "list": lambda _: client.get("/api/workflows"),
        "status": lambda _: client.get("/api/workflows", params={"status": "PAUSED"}),
        "search": lambda number: client.get("/api/workflows", params={"search": f"web-{number % 100}"}),
        "miss": lambda _: client.get("/api/workflows", params={"search": "nowhere"}),
        "create": create,
        "get": get,
    }


async def _times(ask: Callable[[int], Awaitable[Any]], requests: int) -> list[float]:
    """Milliseconds of each request."""
    taken = []
    for number in range(_WARM_UP + requests):
        started = perf_counter()
        answer = await ask(number)
        taken.append(1000 * (perf_counter() - started))
        answer.raise_for_status()
        await asyncio.sleep(0)
    return taken[_WARM_UP:]


async def fill_workflows(context: Any, many: int) -> str:
    """Workflows in every state, and a template to make more from; returns its id."""
    from kingdom.workflow.domain.plan import work_from
    from kingdom.workflow.domain.statuses import WorkflowStatus
    from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate

    tasks = tuple(TaskDefinition(f"task-{number}", "Fix {{ issue.key }}. " * 20) for number in range(3))
    works = tuple(WorkDefinition(name, tasks) for name in ("plan", "fix", "check"))
    ids, began, states = context.parts.ids, datetime(2026, 1, 1, tzinfo=UTC), list(WorkflowStatus)
    template = WorkflowTemplate("tpl-1", "fix", works)
    async with context.parts.store.transaction() as tx:
        await tx.templates.save(template)
    for first in range(0, many, _AT_ONCE):
        async with context.parts.store.transaction() as tx:
            for number in range(first, min(many, first + _AT_ONCE)):
                made = Workflow(
                    f"wf-{number:06}", f"Fix number {number}", began + timedelta(minutes=number), "tpl-1",
                    f"WEB-{number}", "What is to be done here, in a sentence or two.",
                )  # fmt: skip
                made.status = states[number % len(states)]
                for sequence, definition in enumerate(works):
                    work = work_from(definition, made.id, sequence, ids.new)
                    made.work_changed(work.id, work.status)
                    await tx.works.save(work)
                await tx.workflows.save(made)
    return template.id


PARTS = (api,)
