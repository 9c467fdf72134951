"""The files of works: workspaces, reports, and the files of runs.

A workspace is ``<root>/<workflow id>/<name of the work>-<tag>/``. The tag follows from the Work's id: it separates
works with similar names, and the folder stays the same when works are reordered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.base.files import open_untrusted
from kingdom.gitops.files import write_file
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.domain.resources import WorkSpace
    from kingdom.workflow.domain.work import Task, Work

_NOT_IN_SLUG: Final = re.compile(r"[^A-Za-z0-9_]+")
_MAX_SLUG_CHARS: Final = 40


def slug(text: str) -> str:
    """Return a text as part of a path: letters, digits, ``_`` and ``-``; never empty."""
    return _NOT_IN_SLUG.sub("-", text).strip("-")[:_MAX_SLUG_CHARS].strip("-") or "unnamed"


def tag(*ids: str) -> str:
    """Return six hexadecimal digits that follow from ids, to separate things with the same name."""
    return hashlib.sha256("\0".join(ids).encode("utf-8", "replace")).hexdigest()[:6]


# ── workspaces ───────────────────────────────────────────────────────────────────────────────────────────────────────


REPORTS_FOLDER: Final = "reports"
RESULTS_FOLDER: Final = "results"


class WorkspaceUnusable(WorkflowError):
    """A workspace outside the root folder, or one that cannot be written."""

    code = "SYS_WORKSPACE"


class Workspaces:
    """The workspaces below one folder; see :class:`kingdom.workflow.ports.WorkFiles`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def path(self, work: Work) -> str:
        """Return the path of a Work's workspace, which need not exist yet."""
        return str(self.root / work.workflow_id / f"{slug(work.name)}-{tag(work.id)}")

    async def make(self, space: WorkSpace) -> None:
        """Create a workspace. May be repeated."""
        await asyncio.to_thread(make_folder, self._checked(space.path) / RESULTS_FOLDER)

    async def remove(self, space: WorkSpace) -> None:
        """Delete a workspace with its reports. May be repeated; links are not followed."""
        await asyncio.to_thread(_remove_folder, self._checked(space.path))

    async def copy(self, source: WorkSpace, target: WorkSpace) -> None:
        """Copy the regular files of a workspace to another one. May be repeated."""
        origin, goal = self._checked(source.path), self._checked(target.path)
        if origin.is_dir():
            await asyncio.to_thread(shutil.copytree, origin, goal, ignore=_special_files, dirs_exist_ok=True)

    async def read_report(self, path: str) -> str:
        """Return the text of a report."""
        return await asyncio.to_thread(read_report, self._checked(path))

    async def write_report(self, space: WorkSpace, task: Task, text: str) -> str:
        """Write the report of a task; return its path. May be repeated."""
        return str(await asyncio.to_thread(write_report, self._checked(space.path), task, text))

    def _checked(self, path: str) -> Path:
        """Return the path if it is below the root; nothing else is ever touched."""
        folder = Path(path)
        if self.root not in folder.parents or ".." in folder.parts:
            raise WorkspaceUnusable(f"{folder} is not below {self.root}, where workspaces are: it is left alone")
        return folder


def _special_files(folder: str, names: list[str]) -> list[str]:
    """Return the names that are neither regular files nor folders."""
    modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
    return [name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


def _remove_folder(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # the workflow's folder, if this was the last workspace


def make_folder(path: Path) -> None:
    """Create a folder, replacing a link that an agent may have put there."""
    try:
        if path.is_symlink():
            path.unlink()
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceUnusable(f"the folder {path} cannot be made: {error.strerror}") from error


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# The agent writes the report in the conversation of the task, as its last message or as ``report`` in its result file.
# It is stored as ``<workspace>/reports/<order>-<name of the task>.md``.


MAX_REPORT_BYTES: Final = 1024 * 1024
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")
_NUMBER: Final = re.compile(r"(?:\d+(?:\.\d+)*[.):]?|[-*•])\s+")
_QUOTED_BLOCK: Final = re.compile(
    r"^ {0,3}(`{3,})(?:markdown|md)?[ \t]*\n(.*?)\n {0,3}\1`*[ \t]*$", re.MULTILINE | re.DOTALL
)


class ReportIncomplete(WorkflowError):
    """A report that lacks a section of its outline."""

    code = "WFL_REPORT"


def report_prompt(task: Task, outline: Sequence[str]) -> str:
    """Return the prompt for the report of a task."""
    sections = "\n".join(f"## {section}" for section in outline)
    return f"""\
Write the report on what you just did ({task.name}), for people who were not there. Change no file for it.

Answer with the report alone, in Markdown, with exactly these sections in this order, none of them empty:

{sections}

Begin with the first of these headings. Nothing stands before it or after the last section.
"""


def extract_report(text: str, outline: Sequence[str]) -> str:
    """Return the report in an agent's text; raise :class:`ReportIncomplete` with what is missing."""
    quoted = [match[2] for match in _QUOTED_BLOCK.finditer(text)]
    for candidate in (text, *quoted):
        if not missing_sections(candidate, outline):
            return candidate.strip() + "\n"
    if not text.strip():
        raise ReportIncomplete("the agent gave no report")
    missing = "; ".join(missing_sections(text, outline))
    raise ReportIncomplete(f"the report is not complete: {missing}")


def missing_sections(text: str, outline: Sequence[str]) -> list[str]:
    """Return the sections of an outline that are missing or empty."""
    lines = text.splitlines()
    headings = _headings(lines)
    missing = []
    for section in outline:
        starts = [at for at, (_, _, title) in enumerate(headings) if _normalised(title) == _normalised(section)]
        if not starts:
            missing.append(f"no section {section!r}")
        elif not any(_body(lines, headings, at).strip() for at in starts):
            missing.append(f"section {section!r} is empty")
    return missing


def report_path(workspace: Path, task: Task) -> Path:
    """Return the path of a task's report."""
    return workspace / REPORTS_FOLDER / f"{task.order}-{slug(task.name)}.md"


def write_report(workspace: Path, task: Task, text: str) -> Path:
    """Write the report of a task atomically and return its path; raise ``OSError``."""
    path = report_path(workspace, task)
    make_folder(path.parent)
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_REPORT_BYTES:
        raise ReportIncomplete(f"the report has {len(data)} bytes, {MAX_REPORT_BYTES} may be kept")
    write_file(path, data)
    return path


def read_report(path: Path) -> str:
    """Return the text of a report; raise ``OSError``, also for a link that an agent may have put there."""
    with open_untrusted(path) as file:
        return file.read(MAX_REPORT_BYTES).decode("utf-8", "replace")


def _headings(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return line, level and text of each heading outside code blocks."""
    found: list[tuple[int, int, str]] = []
    fence = ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif not fence and (heading := _HEADING.match(line)):
            found.append((number, len(heading[1]), heading[2] or ""))
    return found


def _body(lines: Sequence[str], headings: Sequence[tuple[int, int, str]], at: int) -> str:
    """Return the text below a heading, including its subsections but not their headings."""
    start, level, _ = headings[at]
    end = next((number for number, other, _ in headings[at + 1 :] if other <= level), len(lines))
    inner = {number for number, _, _ in headings}
    return "\n".join(line for number, line in enumerate(lines[start + 1 : end], start + 1) if number not in inner)


def _normalised(title: str) -> str:
    """Return a heading for comparison: in lower case, without emphasis, number and colon."""
    plain = re.sub(r"[*_`]", "", title)
    return " ".join(_NUMBER.sub("", plain.strip(), count=1).rstrip(" :.").casefold().split())


# ── files of runs ────────────────────────────────────────────────────────────────────────────────────────────────────


class RunFiles:
    """The folders and transcripts of runs. The id of a run starts with ``<work id>.``."""

    def __init__(self, runs: Path, sessions: Path) -> None:
        self._runs = runs
        self._sessions = sessions

    async def list(self) -> list[str]:
        """Return the ids of all runs that have a folder."""
        return await asyncio.to_thread(lambda: [path.name for path in _entries(self._runs)])

    async def remove(self, work_id: str) -> None:
        """Delete the files of a Work's runs; the ledger with their cost stays. May be repeated."""
        await asyncio.to_thread(self._remove, f"{work_id}.")

    def _remove(self, prefix: str) -> None:
        for folder in (self._runs, self._sessions):
            names = [path for path in _entries(folder) if path.name.startswith(prefix)]
            for path in names:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        path.unlink()


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []
