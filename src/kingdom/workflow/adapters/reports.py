"""Reports by outline: what the agent is asked for, whether everything is in it, and the file it becomes.

The agent is asked in the conversation in which it did the task, and gives the report as its last message, or as
``report`` in its result file. It lies in ``<workspace>/reports/<order>-<name of the task>.md``.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from kingdom.gitops.files import write_file
from kingdom.workflow.adapters.names import slug
from kingdom.workflow.adapters.workspaces import REPORTS, make_folder
from kingdom.workflow.domain.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.workflow.domain.task import Task

MAX_BYTES: Final = 1024 * 1024
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")
_NUMBER: Final = re.compile(r"(?:\d+(?:\.\d+)*[.):]?|[-*•])\s+")
_QUOTED: Final = re.compile(r"^ {0,3}(`{3,})(?:markdown|md)?[ \t]*\n(.*?)\n {0,3}\1`*[ \t]*$", re.MULTILINE | re.DOTALL)


class ReportIncomplete(WorkflowError):
    """A report without everything its outline asks for."""

    code = "WFL_REPORT"


def ask_for_report(task: Task, outline: Sequence[str]) -> str:
    """The query for the report of a task."""
    sections = "\n".join(f"## {section}" for section in outline)
    return f"""\
Write the report on what you just did ({task.name}), for people who were not there. Change no file for it.

Answer with the report alone, in Markdown, with exactly these sections in this order, none of them empty:

{sections}

Begin with the first of these headings. Nothing stands before it or after the last section.
"""


def finish_report(text: str, outline: Sequence[str]) -> str:
    """The report in what an agent said. Raises :class:`ReportIncomplete` that names what is missing."""
    quoted = [match[2] for match in _QUOTED.finditer(text)]
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
        starts = [at for at, (_, _, title) in enumerate(headings) if _same(title) == _same(section)]
        if not starts:
            missing.append(f"no section {section!r}")
        elif not any(_body(lines, headings, at).strip() for at in starts):
            missing.append(f"section {section!r} is empty")
    return missing


def report_path(workspace: Path, task: Task) -> Path:
    """Where the report of a task lies."""
    return workspace / REPORTS / f"{task.order}-{slug(task.name)}.md"


def write_report(workspace: Path, task: Task, text: str) -> Path:
    """Write the report of a task, whole or not at all. Raises ``OSError``."""
    path = report_path(workspace, task)
    make_folder(path.parent)
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise ReportIncomplete(f"the report has {len(data)} bytes, {MAX_BYTES} may be kept")
    write_file(path, data)
    return path


def read_report(path: Path) -> str:
    """The text of a report. Raises ``OSError``, also for what is no plain file: an agent may have put a link there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(MAX_BYTES).decode("utf-8", "replace")


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


def _same(title: str) -> str:
    """A heading as it is compared: without emphasis, number and colon, in small letters."""
    plain = re.sub(r"[*_`]", "", title)
    return " ".join(_NUMBER.sub("", plain.strip(), count=1).rstrip(" :.").casefold().split())
