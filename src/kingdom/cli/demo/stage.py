"""Where the demo takes place: a home, three generals that play a script, and a repository they work on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from kingdom.cli.output import Failure
from kingdom.court.founding import found
from kingdom.court.home import Home
from kingdom.court.packages.installing import install_package

REPO: Final = "acme/shop"
GENERALS: Final = ("gen-pr", "gen-jira", "gen-release")
_SYSTEM: Final = """\
name: demo
timezone: UTC
concurrency:
  max_soldiers: 4
repos:
  base_url: {remotes}
web:
  enabled: false
"""
_CART: Final = "def total(prices):\n    return round(sum(round(price, 2) for price in prices), 2)\n"


@dataclass(frozen=True, slots=True)
class Stage:
    """The court of the demo."""

    folder: Path
    home: Home
    remote: Path


def build(folder: Path | None) -> Stage:
    """Make everything the play needs."""
    place = Path(tempfile.mkdtemp(prefix="kingdom-demo-")) if folder is None else folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise Failure("NOT_EMPTY", f"{place} is not empty: give --dir an empty directory, or one that is to be made")
    stage = Stage(place, Home(place / "court"), place / "remotes" / REPO)
    _make_repository(stage.remote)
    asyncio.run(found(stage.home.root, generals=()))
    (stage.home.config / "system.yaml").write_text(_SYSTEM.format(remotes=place / "remotes"))
    with as_file(files("kingdom.cli.demo").joinpath("generals")) as packages:
        for name in GENERALS:
            install_package(stage.home, packages / name)
    return stage


def _make_repository(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "cart.py").write_text(_CART)
    (path / "README.md").write_text("# A shop\n")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "A cart")):
        _git(path, *arguments)


def branches(stage: Stage) -> dict[str, str]:
    """The branches soldiers left in the clone of the repository, and what their last commit says."""
    found_branches: dict[str, str] = {}
    for clone in sorted(stage.home.clones.glob("**/HEAD")):
        listed = _git(clone.parent, "for-each-ref", "--format=%(refname:short) %(subject)", "refs/heads/kingdom/")
        found_branches |= dict(line.split(" ", 1) for line in listed.splitlines() if " " in line)
    return {name: subject for name, subject in found_branches.items() if subject != "A cart"}


def _git(path: Path, *arguments: str) -> str:
    """Our own repository: plain git, but not with the settings of whoever runs the demo."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    except FileNotFoundError:
        raise Failure("NO_GIT", "git is not installed, and the demo shows agents at work on a repository") from None
    return done.stdout
