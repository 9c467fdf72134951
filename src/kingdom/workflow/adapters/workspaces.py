"""The files of works: workspaces, reports, and what runs left."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.gitops.files import write_file
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.domain.resources import WorkSpace
    from kingdom.workflow.domain.work import Task, Work


# Names of people's things as parts of paths and branches.


_NOT_IN_SLUG: Final = re.compile(r"[^A-Za-z0-9_]+")
_MAX_SLUG_CHARS: Final = 40


def slug(text: str) -> str:
    """A text as a part of a path: letters, digits, ``_`` and ``-``; never empty."""
    return _NOT_IN_SLUG.sub("-", text).strip("-")[:_MAX_SLUG_CHARS].strip("-") or "unnamed"


def tag(*ids: str) -> str:
    """Six digits that follow from ids: they keep apart what people gave the same name."""
    return hashlib.sha256("\0".join(ids).encode("utf-8", "replace")).hexdigest()[:6]


# Workspaces: one folder for each Work, with its reports and the results its agent leaves.
#
# ``<root>/<workflow id>/<name of the work>-<tag>/``. The tag keeps two works apart whose names look alike, and the folder
# stays the same when works are reordered.


REPORTS_FOLDER: Final = "reports"
RESULTS_FOLDER: Final = "results"


class WorkspaceUnusable(WorkflowError):
    """A workspace that is not where workspaces are, or cannot be written."""

    code = "SYS_WORKSPACE"


class Workspaces:
    """The workspaces below one folder; see :class:`kingdom.workflow.ports.WorkFiles`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def path(self, work: Work) -> str:
        """Where the workspace of a Work is, or will be."""
        return str(self.root / work.workflow_id / f"{slug(work.name)}-{tag(work.id)}")

    async def make(self, space: WorkSpace) -> None:
        """Make a workspace; may be repeated."""
        await asyncio.to_thread(make_folder, self._checked(space.path) / RESULTS_FOLDER)

    async def remove(self, space: WorkSpace) -> None:
        """Remove a workspace with its reports; may be repeated. Links are not followed."""
        await asyncio.to_thread(_remove_folder, self._checked(space.path))

    async def copy(self, source: WorkSpace, target: WorkSpace) -> None:
        """Give a Work of another workflow the files of this one, but for links and the like; may be repeated."""
        origin, goal = self._checked(source.path), self._checked(target.path)
        if origin.is_dir():
            await asyncio.to_thread(shutil.copytree, origin, goal, ignore=_special_files, dirs_exist_ok=True)

    def _checked(self, path: str) -> Path:
        """A path below our folder: what is stored elsewhere is not touched."""
        folder = Path(path)
        if self.root not in folder.parents or ".." in folder.parts:
            raise WorkspaceUnusable(f"{folder} is not below {self.root}, where workspaces are: it is left alone")
        return folder


def _special_files(folder: str, names: list[str]) -> list[str]:
    """What an agent left that is neither a file nor a folder."""
    modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
    return [name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


def _remove_folder(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # the last one takes the workflow's folder with it


def make_folder(path: Path) -> None:
    """Make a folder that is one: an agent may have put a link in its place."""
    try:
        if path.is_symlink():
            path.unlink()
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceUnusable(f"the folder {path} cannot be made: {error.strerror}") from error


# Reports by outline: what the agent is asked for, whether everything is in it, and the file it becomes.
#
# The agent is asked in the conversation in which it did the task, and gives the report as its last message, or as
# ``report`` in its result file. It lies in ``<workspace>/reports/<order>-<name of the task>.md``.


MAX_REPORT_BYTES: Final = 1024 * 1024
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")
_NUMBER: Final = re.compile(r"(?:\d+(?:\.\d+)*[.):]?|[-*•])\s+")
_QUOTED_BLOCK: Final = re.compile(
    r"^ {0,3}(`{3,})(?:markdown|md)?[ \t]*\n(.*?)\n {0,3}\1`*[ \t]*$", re.MULTILINE | re.DOTALL
)


class ReportIncomplete(WorkflowError):
    """A report without everything its outline asks for."""

    code = "WFL_REPORT"


def report_prompt(task: Task, outline: Sequence[str]) -> str:
    """The query for the report of a task."""
    sections = "\n".join(f"## {section}" for section in outline)
    return f"""\
Write the report on what you just did ({task.name}), for people who were not there. Change no file for it.

Answer with the report alone, in Markdown, with exactly these sections in this order, none of them empty:

{sections}

Begin with the first of these headings. Nothing stands before it or after the last section.
"""


def extract_report(text: str, outline: Sequence[str]) -> str:
    """The report in what an agent said. Raises :class:`ReportIncomplete` that names what is missing."""
    quoted = [match[2] for match in _QUOTED_BLOCK.finditer(text)]
    for candidate in (text, *quoted):
        if not missing_sections(candidate, outline):
            return candidate.strip() + "\n"
    if not text.strip():
        raise ReportIncomplete("the agent gave no report")
    missing = "; ".join(missing_sections(text, outline))
    raise ReportIncomplete(f"the report is not complete: {missing}")


def missing_sections(text: str, outline: Sequence[str]) -> list[str]:
    """What of an outline a report does not have: a section that is not there, or has nothing in it."""
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
    """Where the report of a task lies."""
    return workspace / REPORTS_FOLDER / f"{task.order}-{slug(task.name)}.md"


def write_report(workspace: Path, task: Task, text: str) -> Path:
    """Write the report of a task, whole or not at all. Raises ``OSError``."""
    path = report_path(workspace, task)
    make_folder(path.parent)
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_REPORT_BYTES:
        raise ReportIncomplete(f"the report has {len(data)} bytes, {MAX_REPORT_BYTES} may be kept")
    write_file(path, data)
    return path


def read_report(path: Path) -> str:
    """The text of a report. Raises ``OSError``, also for what is no plain file: an agent may have put a link there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(MAX_REPORT_BYTES).decode("utf-8", "replace")


def _headings(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Line, level and text of each heading; what stands in a block of code is none."""
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
    """What stands below a heading, its own subsections with it, their headings without."""
    start, level, _ = headings[at]
    end = next((number for number, other, _ in headings[at + 1 :] if other <= level), len(lines))
    inner = {number for number, _, _ in headings}
    return "\n".join(line for number, line in enumerate(lines[start + 1 : end], start + 1) if number not in inner)


def _normalised(title: str) -> str:
    """A heading as it is compared: without emphasis, number and colon, in small letters."""
    plain = re.sub(r"[*_`]", "", title)
    return " ".join(_NUMBER.sub("", plain.strip(), count=1).rstrip(" :.").casefold().split())


# What the runs of a Work leave: a folder for each, and what its agent said. The ledger, with the cost, stays.


class RunFiles:
    """The folders of runs, and their transcripts. Runs of a Work are called ``<work id>.…``."""

    def __init__(self, runs: Path, sessions: Path) -> None:
        self._runs = runs
        self._sessions = sessions

    async def remove(self, work_id: str) -> None:
        """Remove everything the runs of a Work left; may be repeated."""
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
