"""Reading the installed generals."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.packages.manifest import Manifest

if TYPE_CHECKING:
    from kingdom.court.home import Home

MANIFEST_FILE: Final = "manifest.yaml"
PROMPT_FILE: Final = "prompt.md"
INSTRUCTIONS_FILE: Final = "instructions.md"
WORKFLOW_FILE: Final = "workflow.yaml"


@dataclass(frozen=True, slots=True)
class GeneralPackage:
    """A general and where its files lie."""

    manifest: Manifest
    folder: Path

    @property
    def name(self) -> str:
        """Its name, which is its role's as well."""
        return self.manifest.name

    @property
    def prompt_path(self) -> Path:
        """The template of its prompts."""
        return self.folder / PROMPT_FILE

    @property
    def instructions_path(self) -> Path:
        """What its soldiers find as CLAUDE.md and AGENTS.md; may be missing."""
        return self.folder / INSTRUCTIONS_FILE

    @property
    def workflow_path(self) -> Path:
        """For mode workflow: its template, where the general brings it along; may be missing."""
        return self.folder / WORKFLOW_FILE


@dataclass(frozen=True, slots=True)
class Generals:
    """All installed generals: those that can be used, and what is wrong with the others."""

    by_name: dict[str, GeneralPackage] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    broken: tuple[str, ...] = ()
    """The names of those that cannot be used."""


def load_generals(home: Home) -> Generals:
    """Read every installed general. One that cannot be used is told of in ``problems`` and hinders no other."""
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
    """Read one general from its folder, or raise :class:`YamlProblem` with everything that is wrong."""
    general = GeneralPackage(load_yaml(folder / MANIFEST_FILE, Manifest, {"folder": folder.name}), folder)
    if general.manifest.mode == "agent" and not general.prompt_path.is_file():
        raise YamlProblem([f"{general.prompt_path}: missing; it is the template of the general's prompts"])
    return general


class GeneralsCache:
    """The installed generals, read again only when one of their files changed."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: tuple[object, ...] | None = None
        self._generals = Generals()

    def current(self) -> Generals:
        """What lies there now."""
        seen = tuple(_signature(folder) for folder in general_folders(self._home))
        if seen != self._seen:
            self._generals = load_generals(self._home)
            self._seen = seen
        return self._generals


def general_folders(home: Home) -> list[Path]:
    """The folders of the generals, by name; a dot in front means one on its way in or out."""
    try:
        found = sorted(home.generals.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder for folder in found if not folder.name.startswith(".") and folder.is_dir()]


def _signature(folder: Path) -> tuple[object, ...]:
    signature: list[object] = [folder.name]
    for name in (MANIFEST_FILE, PROMPT_FILE):
        try:
            found = (folder / name).stat()
        except OSError:
            signature.append(None)
        else:
            signature.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(signature)
