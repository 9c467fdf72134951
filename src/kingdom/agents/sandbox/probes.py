"""Try whether an engine can work where its commands are confined: in our sandbox, or in one of its own.

A program that is installed may still fail there: a helper is missing, or the system does not let it make namespaces.
Then every command of the agent fails, and so does every task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.agents.engine import ConfinableEngine, Confinement, inherited_environment
from kingdom.agents.errors import AgentsError
from kingdom.agents.port import Order

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.sandbox.sandbox import Sandbox

_SECONDS: Final = 60.0
_MAX_OUTPUT_CHARS: Final = 300
# How a program runs a command in its own sandbox, which it uses where ours is off.
_OWN_SANDBOXES: Final = {"codex": ("sandbox", "--", "true")}


def has_own_sandbox(engine: Engine | InProcessEngine) -> bool:
    return engine.name in _OWN_SANDBOXES


async def try_in_sandbox(
    engine: Engine | InProcessEngine, sandbox: Sandbox, program: str, environ: Mapping[str, str] | None = None
) -> str | None:
    """Run the program of an engine in our sandbox. Returns what went wrong, or None."""
    with tempfile.TemporaryDirectory(prefix="kingdom-probe-") as name:
        folder = Path(name)
        order = Order("probe", "probe", engine.name, "", folder, folder / "result.json", profile="read", confined=True)
        env = sandbox.environment(inherited_environment(os.environ if environ is None else environ))
        try:
            needed = engine.confinement(order) if isinstance(engine, ConfinableEngine) else Confinement()
            inside = sandbox.command(order, needed, [program, "--version"], env, reports=False)
        except AgentsError as error:
            return str(error)
        return await _run(sandbox.isolated(inside), env, folder)


async def try_own_sandbox(
    engine: Engine | InProcessEngine, program: str, environ: Mapping[str, str] | None = None
) -> str | None:
    """Have the program of an engine run a command in its own sandbox. Returns what went wrong, or None."""
    with tempfile.TemporaryDirectory(prefix="kingdom-probe-") as name:
        env = dict(os.environ if environ is None else environ)
        return await _run([program, *_OWN_SANDBOXES[engine.name]], env, Path(name))


async def _run(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> str | None:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return str(error)
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        return f"it did not end within {_SECONDS:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
        await process.wait()
    if process.returncode == 0:
        return None
    words = " ".join(said.decode(errors="replace").split())[-_MAX_OUTPUT_CHARS:]
    return f"exit code {process.returncode}: {words or 'it said nothing'}"
