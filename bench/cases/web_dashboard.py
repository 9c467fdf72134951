"""The dashboard in a real browser: how soon a page is there, and what twenty open ones cost the server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from uuid import uuid4

from playwright.sync_api import Browser, BrowserContext, sync_playwright

from bench.bars import Bar
from bench.cases.web_court import fill
from bench.context import Context
from bench.court import cpu_seconds, rss_mib, wait_until
from bench.harness import Contestant, Figures, Outcome, Table
from kingdom.court.home import Home
from kingdom.court.init_home import create_home
from kingdom.journal import Journal
from kingdom.web.record import running_server
from kingdom.web.security.credentials import login_link, obtain_token
from tests.support.browser import FLAGS, chromium

TITLE = "the dashboard in a browser"
_TASKS: Final = 10_000
_OPEN: Final = 20
_MANY: Final = "10,000 tasks"
_PATHS: Final = ("/", "/tasks", "/bus", f"/tasks/task-20260207-{_TASKS - 1:05}", "/workflows")
_FIRST: Final = {"/": "[data-condition]", "/tasks": "tbody tr:nth-child(50)"}
_RATE: Final = 10.0  # events per second while pages are open
_PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
_COUNT_SHIFTS: Final = """
    window.layoutShift = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.layoutShift += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
"""
_SHIFT: Final = "window.layoutShift"
_SINCE: Final = "performance.now()"


class _Server(NamedTuple):
    url: str
    login: str
    pid: int
    home: Home


def first_paint(context: Context) -> list[Table]:
    """A page on a browser that was never here, and on one that was."""
    folder, times = context.directory("web-dashboard"), context.pick(3, 7)
    outcomes = context.race(
        Contestant(_MANY, partial(_paint, folder, times), f"{_TASKS:,} tasks in the store", timeout=300.0),
        reps=min(context.reps, 3),
    )
    remark = f"Chromium on loopback, the median of {times} loads; cold: nothing in the browser's cache"
    return [
        _table(
            f"{page}, {cache}: {what}",
            "ms",
            outcomes,
            f"{path} {cache} {key}",
            Bar("<", 1000.0) if key == "paint" else None,
            remark,
        )
        for path, page in (("/", "Court"), ("/tasks", "Tasks"))
        for cache in ("cold", "warm")
        for key, what in (("paint", "first paint"), ("there", "content is there"))
    ]


def many_open(context: Context) -> list[Table]:
    """Twenty pages that stay open while things happen."""
    folder, seconds = context.directory("web-dashboard"), context.pick(10.0, 30.0)
    outcomes = context.race(
        Contestant(_MANY, partial(_crowd, folder, seconds), f"{_OPEN} pages, {_RATE:.0f} events/s", timeout=600.0),
        reps=min(context.reps, 2),
    )
    remark = f"Real pages of Chromium, four of each kind; {_TASKS:,} tasks in the store; {seconds:.0f} s of events"
    return [
        _table("Memory of the server without a page", "MiB", outcomes, "before", None, remark),
        _table(f"Memory of the server with {_OPEN} pages", "MiB", outcomes, "memory", Bar("<", 200.0), remark),
        _table("The same after all were closed and opened again", "MiB", outcomes, "again", Bar("<", 200.0), remark),
        _table("CPU of the server while things happen, of one core", "%", outcomes, "cpu", Bar("<", 10.0), remark),
        _table(
            "Layout shift of the page with the most, while things happen",
            "score",
            outcomes,
            "shift",
            Bar("<", 0.1),
            remark,
        ),
        _table("CPU of the server while nothing happens, of one core", "%", outcomes, "idle", None, remark),
    ]


def _table(title: str, unit: str, outcomes: list[Outcome], metric: str, bar: Bar | None, remark: str) -> Table:
    bars = {_MANY: [bar]} if bar is not None else {}
    return Table(title, unit, outcomes, metric=metric, bars=bars, higher_is_better=False, remarks=(remark,))


def _paint(folder: Path, times: int) -> Figures:
    figures: dict[str, float] = {}
    with _served(folder / uuid4().hex) as server, _browser() as browser:
        _visit(browser, server, "/tasks")  # the index of the tasks is built when first asked for
        for path in ("/", "/tasks"):
            loads = [_visit(browser, server, path) for _ in range(times)]
            for number, cache in enumerate(("cold", "warm")):
                figures[f"{path} {cache} paint"] = median(load[number][0] for load in loads)
                figures[f"{path} {cache} there"] = median(load[number][1] for load in loads)
    return figures


def _visit(browser: Browser, server: _Server, path: str) -> list[tuple[float, float]]:
    """Milliseconds to the first paint and to the content, with an empty cache and with a full one."""
    context = _logged_in(browser, server)
    found = []
    for _ in range(2):
        page = context.new_page()
        page.goto(server.url + path)
        page.wait_for_selector(_FIRST[path])
        found.append((float(page.evaluate(_PAINT)), float(page.evaluate(_SINCE))))
        page.close()
    context.close()
    return found


def _crowd(folder: Path, seconds: float) -> Figures:
    with _served(folder / uuid4().hex) as server, _browser() as browser:
        _visit(browser, server, "/tasks")
        before = rss_mib(server.pid)
        context = _open_all(browser, server)
        idle = _cpu_while(server, seconds / 2, 0.0)
        loaded = _shifts(context)  # what moved while the pages were loaded
        cpu = _cpu_while(server, seconds, _RATE)
        memory = rss_mib(server.pid)
        shift = max(after - first for after, first in zip(_shifts(context), loaded, strict=True))
        context.close()
        again = _open_all(browser, server)
        _cpu_while(server, seconds / 2, _RATE)
        figures = {
            "before": before,
            "memory": memory,
            "cpu": cpu,
            "idle": idle,
            "shift": shift,
            "again": rss_mib(server.pid),
        }
        again.close()
        return figures


def _shifts(context: BrowserContext) -> list[float]:
    return [float(page.evaluate(_SHIFT)) for page in context.pages]


def _open_all(browser: Browser, server: _Server) -> BrowserContext:
    context = _logged_in(browser, server)
    context.add_init_script(_COUNT_SHIFTS)
    for path in itertools.islice(itertools.cycle(_PATHS), _OPEN):
        page = context.new_page()
        page.goto(server.url + path)
        page.wait_for_selector("#main")
    return context


def _cpu_while(server: _Server, seconds: float, rate: float) -> float:
    """Have things happen for a while; what part of a core the server used meanwhile, in percent."""
    journal = Journal(server.home.journal)
    before, began = cpu_seconds(server.pid), time.monotonic()
    number = 0
    while (gone := time.monotonic() - began) < seconds:
        if number < gone * rate:
            number += 1
            journal.emit("task.started", "gen-bench", {"task_id": f"task-20260207-{number:05}"})
        time.sleep(0.02)
    journal.close()
    return 100 * (cpu_seconds(server.pid) - before) / (time.monotonic() - began)


def _logged_in(browser: Browser, server: _Server) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(120_000)
    context.request.get(server.login, max_redirects=0)
    return context


@contextlib.contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def _served(root: Path) -> Iterator[_Server]:
    """``kingdom web`` on a court with many tasks."""
    home = asyncio.run(create_home(root, generals=())).home
    fill(home, _TASKS)
    token = obtain_token(root)
    command = (sys.executable, "-m", "kingdom", "web", "--home", str(root), "--port", "0")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: running_server(root), 60.0, "the web server")
            running = running_server(root)
            assert running is not None
            yield _Server(running.url, login_link(running.url, token), process.pid, home)
        finally:
            process.terminate()
            process.wait(30)


PARTS = (first_paint, many_open)
