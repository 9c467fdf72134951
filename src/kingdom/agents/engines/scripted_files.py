"""What a script does to the files around it: write below the working folder, and commit."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

from kingdom.agents.environment import inherited
from kingdom.agents.errors import InvalidScript

_GIT: Final = (
    *("git", "-c", "user.name=Scripted", "-c", "user.email=scripted@kingdom.invalid", "-c", "commit.gpgsign=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
)


def write_below(folder: Path, path: str, text: str) -> None:
    """Write a file whose path, links followed, lies below ``folder``."""
    root = folder.resolve()
    target = (root / path).resolve()
    if target == root or not target.is_relative_to(root):
        raise InvalidScript(f"write: {path!r:.80} is not below the working folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


async def commit(folder: Path, message: str) -> None:
    """Commit everything that changed in ``folder``."""
    await _git(folder, "add", "--all")
    await _git(folder, "commit", "--quiet", "--allow-empty", "--no-verify", "-m", message)


async def _git(folder: Path, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(*_GIT, *arguments),
        cwd=folder,
        env={**inherited(os.environ), "GIT_TERMINAL_PROMPT": "0"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise InvalidScript(f"git {arguments[0]} in {folder} failed: {errors.decode(errors='replace').strip()[:500]}")
