"""Read the packages of installed generals."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.base.files import file_version, read_object
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.packages.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home

MANIFEST_FILE: Final = "manifest.yaml"
PROMPT_FILE: Final = "prompt.md"
INSTRUCTIONS_FILE: Final = "instructions.md"
WORKFLOW_FILE: Final = "workflow.yaml"


@dataclass(frozen=True, slots=True)
class GeneralPackage:
    """The manifest of a general, and the folder of its package."""

    manifest: Manifest
    folder: Path

    @property
    def name(self) -> str:
        """The name of the general and of its role."""
        return self.manifest.name

    @property
    def prompt_path(self) -> Path:
        """The prompt template."""
        return self.folder / PROMPT_FILE

    @property
    def instructions_path(self) -> Path:
        """The instructions that soldiers find as CLAUDE.md and AGENTS.md. The file may be missing."""
        return self.folder / INSTRUCTIONS_FILE

    @property
    def workflow_path(self) -> Path:
        """The workflow template of a general with mode ``workflow``. The file may be missing."""
        return self.folder / WORKFLOW_FILE


@dataclass(frozen=True, slots=True)
class Generals:
    """All installed generals: the valid ones, and the problems of the others."""

    by_name: dict[str, GeneralPackage] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    broken: tuple[str, ...] = ()
    """The names of the invalid ones."""

    def on(self, runs_here: Callable[[Manifest], bool]) -> Generals:
        """Return those that run on a machine."""
        return replace(self, by_name={name: one for name, one in self.by_name.items() if runs_here(one.manifest)})


def load_generals(home: Home) -> Generals:
    """Read every installed general. An invalid one is reported in ``problems`` and does not affect the others."""
    by_name: dict[str, GeneralPackage] = {}
    problems: list[str] = []
    broken: list[str] = []
    for folder in general_folders(home):
        try:
            by_name[folder.name] = load_general(folder)
        except YamlProblem as error:
            broken.append(folder.name)
            problems += error.problems
    return Generals(by_name, problems, tuple(broken))


def load_general(folder: Path) -> GeneralPackage:
    """Read one general from its folder. Raises :class:`YamlProblem` with all problems."""
    general = GeneralPackage(load_yaml(folder / MANIFEST_FILE, Manifest, {"folder": folder.name}), folder)
    if general.manifest.mode == "agent" and not general.prompt_path.is_file():
        raise YamlProblem([f"{general.prompt_path}: missing; it is the template of the general's prompts"])
    return general


class GeneralsCache:
    """Reads the installed generals again only when one of their files changed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: tuple[object, ...] | None = None
        self._generals = Generals()

    def current(self) -> Generals:
        """Return the generals as they are now."""
        root = str(self._home.generals)  # strings: with many generals, the paths would cost more than the calls
        seen = tuple(_signature(f"{root}/{name}") for name in _names(self._home))
        if seen != self._seen:
            self._generals = load_generals(self._home)
            self._seen = seen
        return self._generals

    def latest(self) -> Generals:
        """Return the generals as :meth:`current` last found them, without a look at their files."""
        return self.current() if self._seen is None else self._generals


def general_folders(home: Home) -> list[Path]:
    """Return the folders of the generals, by name."""
    return [home.generals / name for name in _names(home)]


def _names(home: Home) -> list[str]:
    """Return the names of the folders of generals. A leading dot marks a package that is being changed."""
    try:
        with os.scandir(home.generals) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _signature(folder: str) -> tuple[object, ...]:
    signature: list[object] = [folder]
    for name in (MANIFEST_FILE, PROMPT_FILE):
        try:
            signature.append(file_version(f"{folder}/{name}"))
        except OSError:
            signature.append(None)
    return tuple(signature)


def held_tasks(home: Home) -> dict[str, list[str]]:
    """Return the tasks that generals hold back for a condition outside, by general and reason."""
    found: dict[str, list[str]] = {}
    for path in sorted(home.generals.glob("*/manifest.yaml")):
        held = read_object(home.heartbeat(path.parent.name)).get("held")
        for task_id, one in held.items() if isinstance(held, dict) else ():
            if isinstance(one, dict):
                found.setdefault(f"{path.parent.name}: {one.get('reason')}", []).append(str(task_id))
    return found
