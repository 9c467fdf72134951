"""Workspaces: one folder for each Work, with its reports and the results its agent leaves.

``<root>/<workflow id>/<name of the work>-<tag>/``. The tag keeps two works apart whose names look alike, and the folder
stays the same when works are reordered.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.workflow.adapters.names import slug, tag
from kingdom.workflow.domain.errors import WorkflowError

if TYPE_CHECKING:
    from kingdom.workflow.domain.resources import WorkSpace
    from kingdom.workflow.domain.task import Report
    from kingdom.workflow.domain.work import Work

REPORTS: Final = "reports"
RESULTS: Final = "results"


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
        await asyncio.to_thread(make_folder, self._checked(space.path) / RESULTS)

    async def remove(self, space: WorkSpace) -> None:
        """Remove a workspace with its reports; may be repeated. Links are not followed."""
        await asyncio.to_thread(_remove, self._checked(space.path))

    async def remove_report(self, report: Report) -> None:
        """Remove the file of a report; may be repeated."""
        if report.file_path is not None:
            self._checked(report.file_path).unlink(missing_ok=True)

    async def copy(self, source: WorkSpace, target: WorkSpace) -> None:
        """Give a Work of another workflow the files of this one, but for links and the like; may be repeated."""
        origin, goal = self._checked(source.path), self._checked(target.path)
        if origin.is_dir():
            await asyncio.to_thread(shutil.copytree, origin, goal, ignore=_no_files, dirs_exist_ok=True)

    def _checked(self, path: str) -> Path:
        """A path below our folder: what is stored elsewhere is not touched."""
        folder = Path(path)
        if self.root not in folder.parents or ".." in folder.parts:
            raise WorkspaceUnusable(f"{folder} is not below {self.root}, where workspaces are: it is left alone")
        return folder


def _no_files(folder: str, names: list[str]) -> list[str]:
    """What an agent left that is neither a file nor a folder."""
    modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
    return [name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


def _remove(folder: Path) -> None:
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
