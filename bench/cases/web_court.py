"""Lists of tasks over HTTP: of an empty court, and of one with ten thousand of them."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from bench.bars import Bar
from bench.context import Context
from bench.court import peak_mib
from bench.harness import Contestant, Figures, Table
from bench.live import TOKEN, server
from bench.stats import percentile
from kingdom.court.home import Home

TITLE = "tasks of a court over HTTP"
_EMPTY, _MANY = "an empty court", "10,000 tasks"
_TASKS: Final = 10_000
_READY: Final = 60.0  # seconds for the index to be built
_REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "list": {},
    "general": {"general": "gen-bench", "status": "failed"},
    "search": {"q": "change 1234"},
    "deep": {"limit": 100},
}


def lists(context: Context) -> list[Table]:
    """The first page, filtered, searched, and pages far behind."""
    folder, requests = context.directory("web-court"), context.pick(100, 500)
    outcomes = context.race(
        Contestant(_EMPTY, partial(_measure, folder, 0, requests), f"{requests} requests of each kind"),
        Contestant(_MANY, partial(_measure, folder, _TASKS, requests), f"{requests} requests of each kind"),
        reps=min(context.reps, 3),
    )
    remark = "A server process, one client on loopback, one request after the other; the index is warm"
    titles = {
        "list": "The first 50 tasks",
        "general": "The first 50 failed ones of a general",
        "search": "The first 50 with two words",
        "deep": "The next 100, page by page",
    }
    tables = []
    for name, title in titles.items():
        for part in ("p50", "p99"):
            bars = {one: [Bar("<", 50.0)] for one in (_EMPTY, _MANY)} if part == "p99" else {}
            if (name, part) == ("list", "p50"):
                bars = {_MANY: [Bar("<", 2.0, of=_EMPTY)]}
            tables.append(
                Table(
                    f"{title}, {part}",
                    "ms",
                    outcomes,
                    metric=f"{name}.{part}",
                    bars=bars,
                    higher_is_better=False,
                    remarks=(remark,),
                )
            )
    for metric, title, unit in (
        ("built", "From the first request to an index of all of them", "ms"),
        ("memory", "Peak memory of the server", "MiB"),
    ):
        tables.append(Table(title, unit, outcomes, metric=metric, higher_is_better=False, remarks=(remark,)))
    return tables


def _measure(folder: Path, tasks: int, requests: int) -> Figures:
    with server(folder / uuid4().hex) as served:
        fill(Home(served.root), tasks)
        figures = asyncio.run(_ask(served.url, tasks, requests))
        return {**figures, "memory": peak_mib(served.pid)}


def fill(home: Home, tasks: int) -> None:
    """Have so many tasks lie there, completed or failed."""
    completed = home.queue / "tasks" / "completed"
    completed.mkdir(parents=True, exist_ok=True)
    began = datetime(2026, 2, 7, tzinfo=UTC)
    for number in range(tasks):
        task = {
            "id": f"task-20260207-{number:05}",
            "event_id": f"evt-github-{number}",
            "target_general": ("gen-bench", "gen-other")[number % 2],
            "type": "github.pr.opened",
            "payload": {"title": f"Change {number}", "pr_number": number + 1, "body": "What it is about. " * 30},
            "priority": "normal",
            "created_at": (began + timedelta(seconds=number)).isoformat(),
            "status": ("completed", "failed")[number % 3 == 0],
        }
        (completed / f"{task['id']}.json").write_text(json.dumps(task))


async def _ask(url: str, tasks: int, requests: int) -> Figures:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=_READY) as client:
        began = time.perf_counter()
        while (await _page(client))["total"] < tasks:
            if time.perf_counter() - began > _READY:
                raise TimeoutError(f"no index of {tasks:,} tasks after {_READY:.0f} s")
        figures = {"built": 1000 * (time.perf_counter() - began)}
        for name, query in _REQUESTS.items():
            taken, cursor = [], None
            for _ in range(requests):
                asked = query if cursor is None else {**query, "cursor": cursor}
                began = time.perf_counter()
                page = await _page(client, **asked)
                taken.append(1000 * (time.perf_counter() - began))
                cursor = page["nextCursor"] if name == "deep" else None
            figures |= {f"{name}.p50": percentile(taken, 50), f"{name}.p99": percentile(taken, 99)}
    return figures


async def _page(client: httpx.AsyncClient, **query: Any) -> Any:
    answer = await client.get("/api/tasks", params=query)
    answer.raise_for_status()
    return answer.json()["data"]


PARTS = (lists,)
