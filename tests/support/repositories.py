"""Real git repositories for tests, and everything of ``kingdom.gitops`` around them."""

from __future__ import annotations

import itertools
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kingdom.gitops import (
    CheckpointCommit,
    CheckpointMark,
    Checkpoints,
    Clone,
    Clones,
    CommitAuthor,
    GitRunner,
    Worktree,
    Worktrees,
)

_SOMEBODY = {
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_AUTHOR_EMAIL": "somebody@example.com",
    "GIT_COMMITTER_NAME": "Somebody",
    "GIT_COMMITTER_EMAIL": "somebody@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
}


def plain_git(folder: Path, *words: str, check: bool = True) -> str:
    """Git as a person or an agent in ``folder`` would run it, with whatever configuration the repository has."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **_SOMEBODY}
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


class Remote:
    """A repository that is cloned from, with a branch ``main``."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main", *options)

    @property
    def url(self) -> str:
        return str(self.folder)

    def git(self, *words: str) -> str:
        return plain_git(self.folder, *words)

    def commit(self, files: dict[str, str], message: str = "A commit") -> str:
        """Write files, commit them, and return the commit."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")


class TickingClock:
    """A clock that goes on by one second each time it is read."""

    def __init__(self) -> None:
        self._seconds = itertools.count()

    def __call__(self) -> datetime:
        return datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(seconds=next(self._seconds))


class Ground:
    """Clones, worktrees and checkpoints below one folder."""

    def __init__(self, folder: Path, git: GitRunner | None = None) -> None:
        self.folder = folder
        self.clock = TickingClock()
        self.identity = CommitAuthor("Kingdom", "kingdom@example.com")
        self.clones = Clones(git or GitRunner(), folder / "clones", allow_local=True)
        self.worktrees = Worktrees(self.clones, folder, clock=self.clock, identity=self.identity)
        self.checkpoints = Checkpoints(clock=self.clock, identity=self.identity)

    async def clone(self, remote: Remote) -> Clone:
        return (await self.clones.ensure(remote.url)).clone

    async def worktree(self, remote: Remote, workflow: str = "wf", name: str = "app") -> Worktree:
        return await self.worktrees.create(await self.clone(remote), workflow, name)

    async def checkpoint(self, tree: Worktree, name: str, files: dict[str, str] | None = None) -> CheckpointCommit:
        """Write the files, if any, and make a checkpoint of all that is there."""
        for path, text in (files or {}).items():
            (tree.path / path).write_text(text)
        (made,) = await self.checkpoints.create([tree], CheckpointMark(tree.workflow, name, f"work-{name}"))
        return made


def on_disk(folder: Path) -> dict[str, str]:
    """Every file below a folder but ``.git``: its mode and content, or where a link leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name == ".git" or name.startswith(".git/"):
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = ("x " if path.stat().st_mode & 0o100 else "- ") + path.read_bytes().decode("latin-1")
    return found
