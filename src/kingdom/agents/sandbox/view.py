"""What a confined run sees of the machine: a list of mounts, and bubblewrap's arguments for them.

Nothing is visible that is not listed here: the system read-only, an empty home, a private ``/tmp``, the working
directory and the folder of the result, what the engine asks for, and of git what a commit in this worktree reads and
writes.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kingdom.base.files import write_atomic

if TYPE_CHECKING:
    from kingdom.agents.engine import Confinement
    from kingdom.agents.port import Order

Kind = Literal["read", "write", "empty", "link"]
Mount = tuple[Kind, Path | None]  # and its source

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
# Of /etc what programs need to start, to name users and to check certificates. Not keys, passwords or services.
_ETC: Final = (
    *("passwd", "group", "hosts", "host.conf", "nsswitch.conf", "localtime", "timezone", "os-release", "machine-id"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "locale.alias", "locale.conf", "default/locale"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf", "pki/tls", "pki/ca-trust"),
    *("protocols", "services", "mime.types", "magic", "inputrc", "terminfo", "profile", "bash.bashrc", "shells"),
    *("fonts", "perl", "python3", "java-17-openjdk", "java-21-openjdk", "maven", "login.defs", "debian_version"),
)
# Folders of toolchains below a home: programs, no secrets.
_TOOLCHAINS: Final = (
    *(".pyenv", ".rbenv", ".nodenv", ".goenv", ".nvm", ".volta", ".fnm", ".asdf", ".sdkman", ".rustup", ".cargo/bin"),
    *(".bun/bin", ".deno/bin", "go/bin", "sdk", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise"),
    *(".local/share/fnm", ".local/share/claude", ".local/share/pnpm", ".npm-global", ".local/pipx/venvs"),
)
_KERNEL_SETTINGS: Final = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "pressure")
)
_KERNEL_SECRETS: Final = tuple(f"/proc/{name}" for name in ("kcore", "keys", "key-users", "timer_list", "kallsyms"))
_PREFIX_PARTS: Final = ("lib", "lib64", "libexec", "include", "share", "pyvenv.cfg")  # beside a bin/ on the PATH
_MEMORY_BYTES: Final = 1024**3  # of each folder in memory
_MAX_LINKS: Final = 16  # that are followed, as in the kernel
_BRANCH: Final = re.compile(r"ref: refs/heads(?:/[^/\s.][^/\s]*)+\s*\Z")
_BRANCH_NOTES: Final = "kingdom-branches"  # a folder in a clone: a file for each worktree


class View:
    """The mounts of one run, by path. A later one on the same path replaces an earlier one."""

    def __init__(self, mounts: Mapping[Path, Mount] | None = None) -> None:
        self._mounts = dict(mounts or {})

    @property
    def mounts(self) -> Mapping[Path, Mount]:
        """The mounts by path, without those that another one shows already."""
        return {
            path: (kind, source)
            for path, (kind, source) in self._mounts.items()
            if not self._is_shown(path, kind, source)
        }

    def show(self, path: Path, *, write: bool = False, source: Path | None = None) -> None:
        """Show a file or folder, if it exists. Links on the way to it are shown as links."""
        origin = (source or path).resolve()
        if origin.exists():
            self._mounts[self._follow(path)] = ("write" if write else "read", origin)

    def _follow(self, path: Path) -> Path:
        """Show the links on the way to a path, and return the path without them."""
        for _ in range(_MAX_LINKS):
            link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
            if link is None:
                break
            self._mounts[link] = ("link", link.readlink())
            path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))
        return path

    def show_empty(self, path: Path) -> None:
        """Show an empty folder in memory, which ends with the run."""
        self._mounts[path] = ("empty", None)

    def show_system(self) -> None:
        """Show the system, read-only."""
        for name in (*_SYSTEM, *(f"/etc/{name}" for name in _ETC)):
            self.show(Path(name))

    def show_programs(self, home: Path, search: str) -> None:
        """Show the programs on the PATH and the toolchains of the home, read-only."""
        for name in _TOOLCHAINS:
            self.show(home / name)
        for entry in filter(None, search.split(os.pathsep)):
            folder = Path(entry)
            if not folder.is_absolute() or _is_broad(folder, home):
                continue
            self.show(folder)
            if folder.name in ("bin", "sbin") and not _is_broad(folder.parent, home):
                for part in _PREFIX_PARTS[: None if folder.parent.name != ".local" else 3]:
                    self.show(folder.parent / part)
        for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
            self.show(Path(prefix))

    def show_repository(self, folder: Path, *, write: bool) -> None:
        """Show the clone of a worktree: read-only, except what a commit in this worktree writes.

        An earlier run could have put links into all folders that it may write to. None that leads out is followed.
        """
        pointer = folder / ".git"
        self._show_inside(folder, pointer)
        if (found := find_clone(folder)) is None:
            for name in ("hooks", "config", "info"):  # a repository of its own
                self._show_inside(pointer, pointer / name)
            return
        admin, clone = found
        self.show(clone)
        self.show_empty(clone / "worktrees")
        self.show(admin, write=write)
        for name in ("commondir", "gitdir", "config.worktree", "locked"):
            self._show_inside(admin, admin / name)
        if write:
            self._show_inside(clone, clone / "objects", write=True)
            for name in ("pack", "info"):
                self._show_inside(clone / "objects", clone / "objects" / name)
            self._show_branch(admin, clone)

    def _show_inside(self, folder: Path, path: Path, *, write: bool = False) -> None:
        """Show a path in a folder, unless it is a link, or reached by one, that leads out of the folder."""
        if path.resolve().is_relative_to(folder.resolve()):
            self.show(path, write=write)

    def _show_branch(self, admin: Path, clone: Path) -> None:
        """Let the branch of a worktree be moved: its folder is writable, other branches in it are not."""
        if (own := _own_branch(admin, clone)) is None:
            return
        for place in (clone, clone / "logs"):
            folder = (place / own).parent
            if not folder.resolve().is_relative_to(clone.resolve()):
                continue
            folder.mkdir(parents=True, exist_ok=True)
            self.show(folder, write=True)
            for other in folder.iterdir():
                if other != place / own and not other.is_symlink():
                    self.show(other)

    def arguments(self) -> list[str]:
        """Return bubblewrap's arguments. Outer folders come first, so that inner mounts are on top of them."""
        made = ["--proc", "/proc", "--dev", "/dev"]
        # For root, who owns these files, the kernel asks for no capability: writing some of them is worse than a shell.
        for name in filter(os.path.exists, _KERNEL_SETTINGS):
            made += ["--ro-bind", name, name]
        for name in filter(os.path.exists, _KERNEL_SECRETS):
            made += ["--ro-bind", os.devnull, name]
        flags = {"read": "--ro-bind", "write": "--bind"}
        for path, (kind, source) in sorted(self.mounts.items(), key=lambda item: (len(item[0].parts), item[0])):
            match kind:
                case "empty":
                    made += ["--perms", "0700", "--size", str(_MEMORY_BYTES), "--tmpfs", str(path)]
                case "link":
                    made += ["--symlink", str(source), str(path)]
                case _:
                    made += [flags[kind], str(source), str(path)]
        return [*made, "--remount-ro", "/"]

    def _is_shown(self, path: Path, kind: Kind, source: Path | None) -> bool:
        """Tell whether the nearest mount above a path shows it already as wanted."""
        above = next((folder for folder in path.parents if folder in self._mounts), None)
        if above is None or self._mounts[above][1] != above:
            return False
        return kind == "link" or (kind == "read" and path == source and self._mounts[above][0] == "read")


def find_clone(folder: Path) -> tuple[Path, Path] | None:
    """Return the admin folder and the clone of a worktree; None if ``folder`` is none.

    An agent could have changed the worktree's ``.git`` file, so git's layout and the link back must match it.
    """
    pointer = folder / ".git"
    try:
        if not stat.S_ISREG(pointer.lstat().st_mode):
            return None
        kind, _, target = pointer.read_text("utf-8").strip().partition(": ")
        admin = Path(target)
        back = Path((admin / "gitdir").read_text("utf-8").strip())
        common = (admin / "commondir").read_text("utf-8").strip()
        agree = kind == "gitdir" and admin.is_absolute() and admin.parent.name == "worktrees" and common == "../.."
        return (admin, admin.parent.parent) if agree and back.samefile(pointer) else None
    except (OSError, ValueError):
        return None


def _own_branch(admin: Path, clone: Path) -> str | None:
    """Return the branch of a worktree: the one that it had before its first run, whatever its ``HEAD`` says since.

    It is noted in the clone, where no agent writes, for as long as the same worktree exists.
    """
    notes = clone / _BRANCH_NOTES
    try:
        made = (admin / "gitdir").lstat()
        identity = f"{made.st_ino} {made.st_mtime_ns}\n"
        if notes.is_symlink():
            return None
        note = notes / admin.name
        known = note.read_text("utf-8") if note.is_file() else ""
        head = known.removeprefix(identity)
        if head == known:  # of another worktree, or there is none
            head = (admin / "HEAD").read_text("utf-8")
            notes.mkdir(exist_ok=True)
            write_atomic(note, (identity + head).encode(), durable=False)
    except (OSError, ValueError):
        return None
    return head.removeprefix("ref: ").strip() if _BRANCH.match(head) else None


def run_view(
    order: Order,
    confinement: Confinement,
    *,
    files: Iterable[Path] = (),
    read: Sequence[Path] = (),
    environment: Mapping[str, str],
) -> View:
    """Return what a run sees. ``files`` are those of the run itself, ``read`` what the operator adds."""
    view = View(_machine(environment.get("HOME") or "/", environment.get("PATH", "")))
    for folder in confinement.empty:
        view.show_empty(folder)
    for path in (*read, *confinement.read, *files):
        view.show(path)
    for path, source in confinement.write.items():
        if not source.exists():
            source.mkdir(parents=True, exist_ok=True, mode=0o700)
        view.show(path, write=True, source=source)
    write = order.profile != "read"
    view.show(order.cwd, write=write and not order.folders)
    for folder in order.folders:
        view.show(folder, write=write)
    view.show(order.result_path.parent, write=True)
    for folder in order.folders or (order.cwd, *_folders_in(order.cwd)):
        if (folder / ".git").exists():
            view.show_repository(folder, write=write)
    return view


@cache
def _machine(user_home: str, search: str) -> Mapping[Path, Mount]:
    """Return the mounts that all runs share. What is installed while this process runs needs a restart to be seen."""
    view, home = View(), Path(user_home)
    view.show_system()
    for folder in (Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/dev/shm")):  # noqa: S108
        view.show_empty(folder)
    if home.is_absolute() and not _is_system(home):
        view.show_empty(home)
    view.show_programs(home, search)
    return view.mounts


def _folders_in(cwd: Path) -> list[Path]:
    """Return the folders in a working directory: a workflow with several repositories has a worktree in each."""
    try:
        return [Path(entry.path) for entry in os.scandir(cwd) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_broad(folder: Path, home: Path) -> bool:
    """Tell whether a folder is a home, or has homes or the whole system below it."""
    return home.is_relative_to(folder) or len(folder.parts) < 2 or folder in (Path("/home"), Path("/tmp"))  # noqa: S108


def _is_system(home: Path) -> bool:
    return home == Path("/") or any(home.is_relative_to(name) or Path(name).is_relative_to(home) for name in _SYSTEM)
