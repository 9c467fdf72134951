"""Every list with 100,000 tasks and 10,000 workflows, in every order, as JSON and as a page; and 90 days over time."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Final, get_args
from uuid import uuid4
from zoneinfo import ZoneInfo

import httpx

from bench.bars import Bar
from bench.cases.web_api import fill_workflows
from bench.cases.web_court import fill
from bench.context import Context
from bench.court import cpu_seconds, peak_mib
from bench.harness import Contestant, Figures, Table
from bench.live import TOKEN, server
from bench.stats import percentile
from kingdom.court.home import Home
from kingdom.court.init_home import create_home
from kingdom.court.rollups.store import RollupBatch, RollupStore, SpentInMinute, rollups_path
from kingdom.web.bootstrap import open_context
from kingdom.web.settings import WebSettings
from kingdom.web.views.workflow_order import WorkflowOrder

TITLE = "every list of a large court"
_DAYS: Final = 90
_READY: Final = 300.0  # seconds for the index to be built
_WARM_UP: Final = 3
_SEARCH: Final = "/api/tasks?q=change%201234"
_SEARCH_WARM_UP: Final = 20.0  # seconds: an index of the words is made in the background of the first search
_TASK_ORDERS: Final = ("newest", "oldest", "status", "type", "general", "priority")
_LISTS: Final = {
    **{f"/api/tasks?sort={order}": f"Tasks, {order}" for order in _TASK_ORDERS},
    "/api/tasks?general=gen-bench&status=failed&sort=type": "Failed tasks of a general, type",
    _SEARCH: "Tasks with two words",
    **{f"/api/workflows?sort={order}": f"Workflows, {order}" for order in get_args(WorkflowOrder)},
    "/api/workflows?search=web-77&sort=progress": "Workflows with a word, progress",
    "/api/workflows?status=PAUSED&sort=name": "Paused workflows, name",
    "/api/inbox": "Inbox",
}
_PAGES: Final = ("/tasks", "/tasks?sort=type", "/workflows", "/workflows?sort=progress", "/inbox", "/events", "/logs")
_OVER_TIME: Final = {
    "history": f"The figures of {_DAYS} days",
    "page": f"The page over time, {_DAYS} days, with its charts drawn",
}


def lists(context: Context) -> list[Table]:
    """Each list: the median, the 99th of a hundred, and what it costs the server."""
    tasks, workflows = context.pick((10_000, 2_000), (100_000, 10_000))
    requests, name = context.pick(30, 200), f"{tasks:,} tasks, {workflows:,} workflows"
    folder = context.directory("web-lists")
    outcomes = context.race(
        Contestant(name, partial(_measure, folder, tasks, workflows, requests), timeout=1_800.0),
        reps=min(context.reps, 2),
    )
    remarks = (
        f"A server process, one client on loopback, {requests} requests one after the other; the index is warm",
        "CPU: time of the server process for one request, which other load on the machine changes less",
    )
    bars = {"p99": Bar("<", 50.0), "over": Bar("<", 200.0)}
    kinds = [(path, title, "p99") for path, title in _LISTS.items()]
    kinds += [(path, f"Page {path}", "") for path in _PAGES]
    kinds += [(path, title, "over") for path, title in _OVER_TIME.items()]
    return [
        Table(
            f"{title}, {part}",
            "ms",
            outcomes,
            metric=f"{path} {part}",
            bars={name: [bars[bar]]} if part == "p99" and bar else {},
            higher_is_better=False,
            remarks=remarks,
        )
        for path, title, bar in kinds
        for part in ("p50", "p99", "CPU")
    ] + [Table("Peak memory of the server", "MiB", outcomes, metric="memory", higher_is_better=False, remarks=remarks)]


def _measure(folder: Path, tasks: int, workflows: int, requests: int) -> Figures:
    root = folder / uuid4().hex
    home = asyncio.run(create_home(root, generals=())).home
    fill(home, tasks)
    asyncio.run(_fill_store(root, workflows))
    fill_rollups(home, time.time())
    with server(root, pages=True) as served:
        figures = asyncio.run(_ask(served.url, served.pid, tasks, requests))
        return {**figures, "memory": peak_mib(served.pid)}


async def _fill_store(root: Path, workflows: int) -> None:
    async with open_context(root, WebSettings(port=0), TOKEN, engine=False) as context:
        await fill_workflows(context, workflows)


def fill_rollups(home: Home, now: float) -> None:
    """Ninety days of ten generals and five models, every hour."""
    path = rollups_path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    store = RollupStore(path, ZoneInfo("UTC"))
    for day in range(_DAYS, -1, -1):
        batch = RollupBatch()
        for hour in range(24):
            minute = int(now - day * 86400 - hour * 3600) // 60 * 60
            for number in range(10):
                general = f"gen-{number}"
                for place, kind in enumerate(("completed", "failed", "needs_human", "cancelled")):
                    batch.counts[minute, general, kind] += 10 - place
                for slot in range(60, 120, 6):
                    batch.durations[minute, general, slot + number] += 1
                batch.spending[minute, general, f"model-{number % 5}"] = SpentInMinute(400_000, 12_000, 10)
            for stream in ("events", "tasks", "messages"):
                batch.queue_ages[minute, stream] = (30.0 + hour, hour)
        store.add(batch, now)
    store.close()


async def _ask(url: str, pid: int, tasks: int, requests: int) -> Figures:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    figures: Figures = {}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=_READY) as client:
        began = time.perf_counter()
        while (await client.get("/api/tasks?limit=1")).json()["data"]["total"] < tasks:
            if time.perf_counter() - began > _READY:
                raise TimeoutError(f"no index of {tasks:,} tasks after {_READY:.0f} s")
        until = time.perf_counter() + _SEARCH_WARM_UP
        while time.perf_counter() < until:
            await client.get(_SEARCH)
        for path in _LISTS:
            figures |= await _times(client, pid, path, path, requests)
        for path in _PAGES:
            figures |= await _times(client, pid, path, path, min(requests, 50))
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _DAYS * 86400))
        figures |= await _times(client, pid, "history", f"/api/stats/history?since={since}", min(requests, 50))
        figures |= await _times(client, pid, "page", f"/over-time?within={_DAYS}d", min(requests, 50))
    return figures


async def _times(client: httpx.AsyncClient, pid: int, name: str, path: str, requests: int) -> Figures:
    """Milliseconds of requests, and of the server's CPU time for one."""
    taken, cpu = [], 0.0
    for number in range(_WARM_UP + requests):
        if number == _WARM_UP:
            cpu = cpu_seconds(pid)
        began = time.perf_counter()
        answer = await client.get(path)
        taken.append(1000 * (time.perf_counter() - began))
        if answer.status_code != 200:
            raise ValueError(f"{path}: {answer.status_code} {answer.text[:200]}")
    used = 1000 * (cpu_seconds(pid) - cpu) / requests
    measured = taken[_WARM_UP:]
    return {f"{name} p50": percentile(measured, 50), f"{name} p99": percentile(measured, 99), f"{name} CPU": used}


PARTS = (lists,)
