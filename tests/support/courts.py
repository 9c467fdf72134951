"""A whole court in real processes: a home with generals, ``kingdom up`` behind it, and waiting for what must come."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kingdom.cli.app import run
from tests.support.command import COMMAND, Background, kingdom

PATIENCE = 60.0  # seconds; what is waited for comes far sooner, unless the machine is busy

WORKER = """\
import json, os, sys, time
task = json.load(open(".kingdom-task.json"))
payload = task.get("payload") or {}
print("working on", task["task_id"], flush=True)
while payload.get("until") and not os.path.exists(payload["until"]):
    time.sleep(0.02)
result = payload.get("result") or {"status": "success", "summary": "all is well"}
if payload.get("answer"):
    result = {"status": "success", "summary": "the answer was " + payload["answer"]}
json.dump(result, open(os.environ["KINGDOM_RESULT_PATH"], "w"))
"""


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Wait until a condition holds, and return what it gave; fails when it does not come."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {patience:.0f} s in vain for: {what}")


class Court:
    """A home, and the command line on it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> None:
        """Found it, with one general whose soldiers are small programs."""
        done = kingdom("init", str(self.root), "--general", "gen-briefing")
        assert done.returncode == 0, done.stderr
        assert self.run("general", "remove", "gen-briefing", "--yes").returncode == 0
        (self.root / "worker.py").write_text(WORKER)
        self.install("gen-test")

    def install(self, name: str, **more: Any) -> None:
        """Put a general into its place."""
        folder = self.root / "config" / "generals" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prompt.md").write_text("Do it.\n")
        manifest = {
            "name": name,
            "description": "does what the payload says",
            "engine": {"name": "command", "options": {"argv": [COMMAND[0], str(self.root / "worker.py")]}},
            "subscribes": [f"{name.removeprefix('gen-')}.work"],
            "retries": 0,
            **more,
        }
        (folder / "manifest.yaml").write_text(json.dumps(manifest))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this home."""
        return kingdom(*arguments, KINGDOM_HOME=str(self.root))

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same inside this process: for the many small commands that only answer."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*arguments, "--home", str(self.root)])
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def ask(self, *arguments: str) -> Any:
        """The JSON document of a command that must succeed."""
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def emit(self, payload: dict[str, Any] | None = None, kind: str = "test.work") -> str:
        """Put an event in; returns its id."""
        return str(self.ask("emit", kind, "--payload", json.dumps(payload or {}))["id"])

    @contextlib.contextmanager
    def up(self, *options: str) -> Iterator[Background]:
        """``kingdom up`` in the background; afterwards it is stopped, and must have left nothing."""
        with Background(self.root / "up.txt", "up", *options, KINGDOM_HOME=str(self.root)) as process:
            try:
                yield process
            finally:
                pids = self.pids()
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=PATIENCE)
                for pid in pids.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    @property
    def said(self) -> str:
        """What ``kingdom up`` printed."""
        return (self.root / "up.txt").read_text()

    @property
    def journal(self) -> str:
        """The journal."""
        with contextlib.suppress(FileNotFoundError):
            return (self.root / "logs" / "events.log").read_text()
        return ""

    @property
    def console(self) -> str:
        """What the envoy said."""
        with contextlib.suppress(FileNotFoundError):
            return (self.root / "logs" / "console.log").read_text()
        return ""

    def lose(self, process: Background) -> None:
        """Kill the whole court with its soldiers at once; its disk is lost."""
        identities = [json.loads(path.read_text()) for path in self.root.glob("state/soldiers/*/identity.json")]
        soldiers = [one[name] for one in identities for name in ("shim_pid", "pid")]
        for pid in [process.pid, *self.pids().values(), *soldiers]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(self.root)

    def pids(self) -> dict[str, int]:
        """The processes of the roles that run now, as the supervisor wrote them down."""
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((self.root / "state/supervisor/pid.json").read_text())
            return {name: role["process"]["pid"] for name, role in record["roles"].items() if role["process"]}
        return {}

    def wait_for_roles(self, *names: str) -> dict[str, int]:
        """Until these roles have each given a sign of life; returns their processes."""

        def alive() -> dict[str, int] | None:
            pids = self.pids()
            beats = {name: self.heartbeat(name).get("pid") for name in names}
            return pids if all(name in pids and pids[name] == beats[name] for name in names) else None

        found: dict[str, int] = until(alive, f"signs of life of {', '.join(names)}")
        return found

    def heartbeat(self, name: str) -> dict[str, Any]:
        """The heartbeat of a role, or nothing."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.root / "state" / name / "heartbeat").read_text())
            return found
        return {}

    def document(self, stream: str, state: str, document_id: str) -> dict[str, Any] | None:
        """A document in a state, if it is there."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(
                (self.root / "queue" / stream / state / f"{document_id}.json").read_text()
            )
            return found
        return None

    def wait_completed(self, event_id: str) -> dict[str, Any]:
        """Until an event is completed."""
        found: dict[str, Any] = until(lambda: self.document("events", "completed", event_id), f"{event_id} completed")
        return found

    def task_of(self, event_id: str, status: str | None = None) -> dict[str, Any]:
        """The task an event became, once it has that status: it is settled just after its event."""

        def find() -> dict[str, Any] | None:
            for path in sorted((self.root / "queue" / "tasks").glob("*/task-*.json")):
                with contextlib.suppress(OSError, ValueError):
                    task: dict[str, Any] = json.loads(path.read_text())
                    if task["event_id"] == event_id and status in (None, task["status"]):
                        return task
            return None

        found: dict[str, Any] = until(find, f"a task of {event_id}")
        return found

    def soldier_at_work(self) -> dict[str, Any]:
        """Until a soldier has said something; returns who it is."""

        def find() -> dict[str, Any] | None:
            for path in (self.root / "logs" / "sessions").glob("*.json"):
                if path.stat().st_size:
                    identity = self.root / "state" / "soldiers" / path.stem / "identity.json"
                    found: dict[str, Any] = json.loads(identity.read_text())
                    return found
            return None

        found: dict[str, Any] = until(find, "a soldier at work")
        return found


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
