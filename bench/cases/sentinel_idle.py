"""What it costs to listen while nothing happens: GitHub and Jira are asked once a minute, and have nothing to tell."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import cpu_seconds, make_home, pss_mib, wait_until
from bench.harness import Contestant, Figures, Table
from kingdom.court.home import Home

TITLE = "a sentinel that listens while nothing happens"
_NAME: Final = "sentinel"
_TOKENS: Final = {"GITHUB_TOKEN": "for-the-bench", "JIRA_API_TOKEN": "for-the-bench", "NO_PROXY": "127.0.0.1"}
_SUBJECTS: Final = 20  # tickets that changed lately: each look reads them again


def idle(context: Context) -> list[Table]:
    folder, seconds = context.directory("sentinel-idle"), context.pick(65.0, 245.0)
    outcomes = context.race(
        Contestant(_NAME, partial(_idle, folder, seconds), timeout=seconds + 120), reps=min(context.reps, 3)
    )
    remark = f"kingdom role sentinel, GitHub and Jira asked every 60 s over loopback, {_SUBJECTS} tickets in view"
    return [
        Table(
            "CPU of a sentinel that hears nothing, of one core",
            "%",
            outcomes,
            metric="cpu",
            bars={_NAME: [Bar("<", 0.2)]},
            higher_is_better=False,
            remarks=(f"{remark}; user and system time over {seconds:.0f} s",),
        ),
        Table("Memory of it", "MiB", outcomes, metric="pss", higher_is_better=False, remarks=(remark,)),
    ]


def _idle(folder: Path, seconds: float) -> Figures:
    home = make_home(folder / uuid4().hex, generals=0)
    with _sources() as (url, asked), _sentinel(home, url) as pid:
        wait_until(lambda: len(asked) >= 4, 60.0, "the first looks")  # both accounts, both lists
        time.sleep(2.0)  # until what comes after them is over
        first, before = len(asked), cpu_seconds(pid)
        time.sleep(seconds)
        used, looks = cpu_seconds(pid) - before, (len(asked) - first) / 2
        if looks < 1:
            raise RuntimeError("nothing was asked: that would measure no listening")
        return {"cpu": 100 * used / seconds, "pss": pss_mib(pid), "looks": looks}


@contextlib.contextmanager
def _sentinel(home: Home, url: str) -> Iterator[int]:
    config = {"github": {"url": url}, "jira": {"url": url, "email": "bench@acme.example", "projects": ["SHOP"]}}
    (home.config / "sentinel.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "kingdom", "role", "sentinel", "--home", str(home.root)]
    process = subprocess.Popen(command, env={**os.environ, **_TOKENS}, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def _sources() -> Iterator[tuple[str, list[str]]]:
    """GitHub and Jira at one address; gives it, and the list of what is asked there."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        serving.join(10)


class _Handler(BaseHTTPRequestHandler):
    """Answers what a look asks for when nothing is new."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/notifications":
            modified = "Sat, 07 Feb 2026 12:00:00 GMT"
            if "If-Modified-Since" in self.headers:
                self._answer(304, None, {"Last-Modified": modified})
            else:
                self._answer(200, [], {"Last-Modified": modified, "X-Poll-Interval": "60"})
        elif path == "/user":
            self._answer(200, {"login": "kingdom-bot"})
        else:
            self._answer(200, {"accountId": "me", "displayName": "Kingdom", "timeZone": "UTC"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, {"issues": [_ticket(number) for number in range(_SUBJECTS)], "isLast": True})

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.asked.append(f"{self.command} {self.path}")
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Nobody reads it."""


def _ticket(number: int) -> dict[str, Any]:
    at = "2026-02-07T12:00:00.000+0000"
    ann = {"accountId": "ann", "displayName": "Ann"}
    history = {"id": str(number), "author": ann, "created": at, "items": [{"field": "status", "toString": "Done"}]}
    return {
        "id": str(10_000 + number),
        "key": f"SHOP-{number + 1}",
        "fields": {
            "summary": f"Ticket {number}",
            "created": at,
            "updated": at,
            "comment": {"comments": [], "total": 0},
        },
        "changelog": {"histories": [history], "total": 1},
    }


PARTS = (idle,)
