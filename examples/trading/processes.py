"""Start workers as processes, and kill them."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path

from examples.trading.workers import Role, Settings

_ROOT = Path(__file__).resolve().parents[2]


async def start(settings: Settings, *roles: Role) -> Process:
    """Start ``python -m examples.trading worker <roles>``."""
    options = [f"--{field.name.replace('_', '-')}={getattr(settings, field.name)}" for field in fields(settings)]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.trading", "worker", *roles, *options, cwd=_ROOT
    )


async def kill(process: Process) -> None:
    """Kill a process with SIGKILL and wait for its end."""
    if process.returncode is None:
        process.kill()
    await process.wait()


@asynccontextmanager
async def running(settings: Settings, *roles: Role) -> AsyncIterator[Process]:
    """Run a process with these roles for the length of the block; terminate it at the end."""
    process = await start(settings, *roles)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
