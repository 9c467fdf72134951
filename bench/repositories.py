"""Repositories to work on."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_repository(folder: Path, files: int) -> None:
    """Make a git repository of so many small files, with one commit."""
    for number in range(files):
        path = folder / f"d{number // 100:03}" / f"file-{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * 20)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "add", "--all")
    _git(folder, "-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit", "--quiet", "--message", "x")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
