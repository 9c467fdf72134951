"""Create the home of a court: folders, queues, commented configuration files and a few generals.

It adds what is missing and never changes existing files, so it can be repeated at any time.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kingdom.base.files import write_atomic
from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS
from kingdom.bus.urls import redact_url
from kingdom.court.config import MACHINE_FILE, check_timezone, load_system
from kingdom.court.errors import CourtError
from kingdom.court.home import MARKER, Home
from kingdom.court.packages.installed import MANIFEST_FILE, load_general, load_generals
from kingdom.court.packages.installer import install_package
from kingdom.court.queues import declare_queues, open_queues
from kingdom.court.request_threads import SHIPPED_GENERAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kingdom.court.packages.installed import GeneralPackage

TEMPLATES_DIR: Final = Path(__file__).parent / "templates"
SHIPPED_GENERALS_DIR: Final = TEMPLATES_DIR / "generals"
_DEFAULT_GENERALS: Final = ("gen-pr", "gen-briefing")
EngineName = Literal["claude", "codex"]

_FOLDERS: Final = (
    "state/king",
    "state/chamberlain",
    "state/sentinel/seen",
    "state/envoy",
    "state/results",
    "state/prompts",
    "state/soldiers",
    "state/ledger",
    "memory/generals",
    "logs/sessions",
    "logs/analysis",
    "workspace",
)
_FILES: Final = {
    MARKER: "system.yaml",
    "config/chamberlain.yaml": "chamberlain.yaml",
    "config/sentinel.yaml": "sentinel.yaml",
    "config/envoy.yaml": "envoy.yaml",
    "config/trust.yaml": "trust.yaml",
    ".gitignore": "gitignore",
}
_PASSWORD: Final = re.compile(r"[a-z]+://[^@?]*:[^@?]+@")  # in a URL
_IGNORED_NAMES: Final = {".git"}  # a folder with only these counts as empty


_ENGINE_SECTION: Final = re.compile(r"(?m)^engine:(?: claude\b.*|(?:\n  .*)+)")  # of a shipped manifest
_SECTION_STARTS: Final = {"sentinel.yaml": "# github:\n", "envoy.yaml": "# slack:\n"}  # the commented sections


class CannotInitHome(CourtError):
    """The folder cannot become a home."""

    code = "CANNOT_FOUND"


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """How a database is named: by a URL, or by the environment variable that holds one with a password."""

    url: str | None = None
    variable: str | None = None

    @property
    def address(self) -> str:
        """The URL. Raises :class:`CannotInitHome` when it is not one of a PostgreSQL, or does not belong in a file."""
        url = self.url if self.url is not None else os.environ.get(self.variable or "", "")
        if not url:
            raise CannotInitHome(f"the environment variable {self.variable} is not set: set it to the database's URL")
        if url.partition(":")[0] not in ("postgresql", "postgres"):
            raise CannotInitHome(f"{redact_url(url)} is not a PostgreSQL: postgresql://host/database")
        if self.url is not None and _PASSWORD.match(url):
            raise CannotInitHome(
                "a password does not belong in a file: put the URL into an environment variable, "
                "such as KINGDOM_DATABASE, and name it with --database-env"
            )
        return url


@dataclass(frozen=True, slots=True)
class SharedQueues:
    """The database in which the machines of a court meet, and what this machine does in the court."""

    machine: str
    url: str | None = None
    """The URL of the database, without a password."""
    url_env: str | None = None
    """The environment variable that holds the URL. One of the two is given."""
    joined: bool = False
    generals: tuple[str, ...] | None = None
    soldiers: int | None = None
    labels: tuple[str, ...] = ()

    @property
    def database(self) -> str:
        """The URL. Raises :class:`CannotInitHome`."""
        return DatabaseName(self.url, self.url_env).address

    def queue_settings(self) -> str:
        """Return the settings for the end of ``config/system.yaml``."""
        place = f"transport: {self.url}" if self.url is not None else f"transport_env: {self.url_env}"
        return f"queue:\n  {place}\n"

    def machine_settings(self) -> str:
        """Return the text of ``config/machine.yaml``."""
        place = f"database: {self.url}" if self.url is not None else f"database_env: {self.url_env}"
        lines = ["# This machine, in a court on several machines.", f"name: {self.machine}", place]
        lines += ["joined: true              # it runs generals only"] if self.joined else []
        if self.generals is not None:
            named = f"generals: [{', '.join(self.generals)}]"
            lines.append(f"{named.ljust(25)} # that run here; without this key all of them")
        lines += (
            [f"labels: [{', '.join(self.labels)}]".ljust(25) + " # for generals that demand them"]
            if self.labels
            else []
        )
        lines += [f"soldiers: {self.soldiers}".ljust(26) + "# at once"] if self.soldiers is not None else []
        return "\n".join(lines) + "\n"


def check_repositories(names: Iterable[str]) -> None:
    """Raise :class:`CannotInitHome` for a name that is not ``owner/name``."""
    for name in names:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise CannotInitHome(f"{name!r:.100} is not a repository: write its owner and name, such as acme/shop")


@dataclass(frozen=True, slots=True)
class HomeChoices:
    """What a new home begins with. It is written into its commented files, where it can be changed later."""

    engine: EngineName = "claude"
    """The engine of the generals that are installed."""
    repos: tuple[str, ...] = ()
    """Repositories on GitHub to watch, such as ``acme/shop``."""
    slack: bool = False
    """Whether messages go to Slack. Its tokens come from environment variables."""
    locale: Literal["en", "ko"] = "en"
    """The language of messages."""
    shared: SharedQueues | None = None
    """The database of a court on several machines."""

    def __post_init__(self) -> None:
        check_repositories(self.repos)

    @property
    def generals(self) -> tuple[str, ...]:
        """The generals of a new home for which none were named."""
        return (*_DEFAULT_GENERALS, SHIPPED_GENERAL) if self.slack else _DEFAULT_GENERALS

    def applied_to(self, template: str, text: str) -> str:
        """Return the text of a configuration file with the choices in it."""
        if template == "system.yaml":
            text = text.replace("\nlocale: en ", f"\nlocale: {self.locale} ", 1)
            return text if self.shared is None else f"{text}\n{self.shared.queue_settings()}"
        section = ""
        if template == "sentinel.yaml" and self.repos:
            section = f"github:\n  notifications: false\n  repos: [{', '.join(self.repos)}]\n\n"
        if template == "envoy.yaml" and self.slack:
            section = "slack:\n  enabled: true\n\n"
        if not section:
            return text
        start = _SECTION_STARTS[template]
        return text.replace(start, f"{section}# Further settings:\n{start}", 1)


@dataclass(slots=True)
class InitResult:
    home: Home
    created: bool
    """Whether the folder was not a home before."""
    added: list[str] = field(default_factory=list)
    """The added files and folders, relative to the home."""


def shipped_generals() -> list[str]:
    """Return the names of the generals that are part of the package."""
    return sorted(folder.name for folder in SHIPPED_GENERALS_DIR.iterdir() if folder.is_dir())


def describe_shipped_generals() -> dict[str, str]:
    """Return what each general of the package does, by its name."""
    return {name: load_general(SHIPPED_GENERALS_DIR / name).manifest.description for name in shipped_generals()}


def install_shipped(
    home: Home, name: str, *, engine: EngineName | None = None, replace: bool = False
) -> GeneralPackage:
    """Install a general of the package. Without ``engine`` it gets that of the court's other generals."""
    if engine is None:
        used = {package.manifest.engine.name for package in load_generals(home).by_name.values()}
        engine = "codex" if "codex" in used and "claude" not in used else "claude"
    install_package(home, SHIPPED_GENERALS_DIR / name, replace=replace)
    _set_engine(home.general(name) / MANIFEST_FILE, engine)
    return load_general(home.general(name))


async def create_home(
    root: Path, generals: Iterable[str] | None = None, *, force: bool = False, choices: HomeChoices | None = None
) -> InitResult:
    """Create the home of a court, or add what is missing in one.

    ``generals`` are names of shipped generals; by default a new home gets those of its choices and an existing one
    none. ``choices`` apply to what is created now. Raises :class:`CannotInitHome` for a folder that has other files,
    unless ``force`` is set. Nothing is overwritten.
    """
    home = Home(root)
    choices = choices or HomeChoices()
    wanted = _checked_generals(generals)
    result = InitResult(home, created=not home.exists)
    if result.created:
        _check_free(home.root, force=force)
        wanted = choices.generals if wanted is None else wanted
    _make_files(result, choices)  # first, because it writes the marker: after an interruption the call can be repeated
    _make_folders(result)
    queues = _names(home.queue)
    async with open_queues(load_system(home).queue_url(home), INTERACTIVE_CONNECT_SECONDS) as bus:
        await declare_queues(bus)
    result.added += [f"queue/{name}/" for name in sorted(_names(home.queue) - queues) if not name.startswith(".")]
    for name in wanted or ():
        if not home.general(name).exists():
            install_shipped(home, name, engine=choices.engine)
            result.added.append(f"config/generals/{name}/")
    return result


def _checked_generals(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    wanted, shipped = tuple(dict.fromkeys(names)), shipped_generals()
    if unknown := [name for name in wanted if name not in shipped]:
        raise CannotInitHome(
            f"there is no shipped general {unknown[0]!r}, only {', '.join(shipped)}: "
            "install your own with kingdom general install DIR"
        )
    return wanted


def _check_free(root: Path, *, force: bool) -> None:
    if root.exists() and not root.is_dir():
        raise CannotInitHome(f"{root} is not a folder")
    found = next(_files_in(root), None)
    if found is not None and not force:
        raise CannotInitHome(
            f"{root} is not empty (it contains {found.relative_to(root)}): choose another folder, "
            "or use --force to create the home in it; nothing there is overwritten"
        )


def _files_in(root: Path) -> Iterator[Path]:
    """Yield the files below a folder. Empty folders, as an interrupted call leaves them, do not count."""
    for folder, subfolders, names in os.walk(root):
        if folder == str(root):
            subfolders[:] = [name for name in subfolders if name not in _IGNORED_NAMES]
        yield from (Path(folder) / name for name in names)


def _set_engine(manifest: Path, engine: str) -> None:
    if engine != "claude":
        text = manifest.read_text(encoding="utf-8")
        write_atomic(manifest, _ENGINE_SECTION.sub(f"engine: {engine}", text, count=1))


def _make_files(result: InitResult, choices: HomeChoices) -> None:
    machine = result.home.config / MACHINE_FILE
    if choices.shared is not None and not machine.exists():  # first: without it the queues would not be shared
        machine.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(machine, choices.shared.machine_settings())
        result.added.append(f"config/{MACHINE_FILE}")
    for relative, template in _FILES.items():
        path = result.home.root / relative
        if os.path.lexists(path):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES_DIR / template).read_text(encoding="utf-8")
        if relative == MARKER:
            text = re.sub(r"(?m)^timezone: UTC *(?=#)", f"timezone: {local_timezone()} ".ljust(24), text)
        write_atomic(path, choices.applied_to(template, text))
        result.added.append(relative)


def _make_folders(result: InitResult) -> None:
    for relative in _FOLDERS:
        path = result.home.root / relative
        if not path.is_dir():
            path.mkdir(parents=True)
            result.added.append(f"{relative}/")
    result.home.generals.mkdir(parents=True, exist_ok=True)


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def local_timezone() -> str:
    """Return the name of this machine's time zone; UTC when it has none."""
    candidates = [os.environ.get("TZ", "").removeprefix(":")]
    _, found, name = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    candidates.append(name if found else "")
    for candidate in candidates:
        if "/" in candidate and not candidate.startswith(
            "Etc/"
        ):  # abbreviations such as EST have no daylight saving time
            try:
                return check_timezone(candidate)
            except ValueError:
                continue
    return "UTC"
