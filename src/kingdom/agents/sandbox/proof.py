"""Prove the sandbox: put bait outside, try to reach it from inside, and look outside for what happened."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import inherited_environment
from kingdom.agents.sandbox import escapes

if TYPE_CHECKING:
    from kingdom.agents.sandbox.sandbox import Sandbox

_SECONDS: Final = 120.0
_OUTLIVE_SECONDS: Final = 0.6  # three rounds of a process that was left behind


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to get out."""

    name: str
    escaped: bool
    detail: str

    @property
    def words(self) -> str:
        """The name as a sentence for people."""
        return self.name.replace("_", " ")


def prove(sandbox: Sandbox, environ: Mapping[str, str] | None = None) -> list[Attempt]:
    """Try to get out in every known way. Raises OSError when the attempts could not be made."""
    with tempfile.TemporaryDirectory(prefix="kingdom-sandbox-") as name, bait(Path(name)) as found:
        root = Path(name)
        work = root / "work"
        work.mkdir()
        program = work / "escapes.py"
        shutil.copyfile(escapes.__file__, program)
        (work / "bait.json").write_text(json.dumps(found))
        env = sandbox.environment(inherited_environment(os.environ if environ is None else environ))
        command = sandbox.offline_command(work, [sys.executable, "-I", str(program), "bait.json"], env)
        done = subprocess.run(  # noqa: S603
            command,
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            start_new_session=True,  # as agents are started: the terminal of the person is not theirs
        )
        attempts = [Attempt(line["attempt"], line["escaped"], line["detail"]) for line in _lines(done.stdout)]
        if len(attempts) != len(escapes.ATTEMPTS):
            raise OSError(f"the sandbox ended early: {done.stderr.decode(errors='replace').strip()[-300:]}")
        time.sleep(_OUTLIVE_SECONDS)
        return [*attempts, *_traces(root, found)]


def _lines(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]


def _traces(root: Path, found: Mapping[str, Any]) -> list[Attempt]:
    """Look outside for what the attempts may have left."""
    left = sorted(path.name for path in (root / "outside").iterdir() if path.name not in ("key", "state"))
    moved = sorted(path.name for path in root.iterdir() if path.name.endswith("-moved"))
    gone = not os.path.exists(f"/proc/{found['pid']}/stat")  # noqa: PTH110
    return [
        Attempt("leave_something_outside", bool(left or moved), ", ".join((*left, *moved))),
        Attempt("end_a_process_outside", gone, "it is gone" if gone else "it runs"),
    ]


@contextlib.contextmanager
def bait(root: Path) -> Iterator[dict[str, Any]]:
    """Put bait into ``root/outside``: files, a process and sockets. Yields where it is."""
    secret, mark = secrets.token_hex(16), f"bait-{secrets.token_hex(8)}"
    outside = root / "outside"
    (outside / "state").mkdir(parents=True)
    (outside / "key").write_text(secret)
    (outside / "state" / "ledger.jsonl").write_text(secret)
    sleeper = "import sys, time; time.sleep(600)"
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen([sys.executable, "-I", "-S", "-c", sleeper, mark], env={"SECRET": secret})  # noqa: S603
        )
        stack.callback(process.kill)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        stack.enter_context(named)
        stack.enter_context(abstract)
        handle = os.open(outside, os.O_PATH)
        stack.callback(os.close, handle)
        named.bind(f"/proc/self/fd/{handle}/state/service.sock")
        named.listen()
        abstract.bind("\0" + mark)
        abstract.listen()
        yield {
            "secret": secret,
            "mark": mark,
            "file": str(outside / "key"),
            "folder": str(outside),
            "hidden": [str(outside), str(outside / "state"), str(root / "other-worktree")],
            "home": str(Path.home()),
            "pid": process.pid,
            "port": server.getsockname()[1],
            "unix": str(outside / "state" / "service.sock"),
            "abstract": mark,
        }
