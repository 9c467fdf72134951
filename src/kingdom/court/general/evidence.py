"""Check the evidence that a manifest demands for a ``success``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import inherited_environment
from kingdom.agents.errors import SandboxUnavailable
from kingdom.agents.untrusted import clean_line
from kingdom.court.general.comments import comments_of, comments_problem
from kingdom.court.general.reports import text_of
from kingdom.court.models import EvidenceCheck
from kingdom.court.packages.manifest import CommandEvidence, FileEvidence, SummaryEvidence
from kingdom.gitops import GitError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Literal

    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.court.general.workspace import PullRequest, Workplace
    from kingdom.court.packages.manifest import SummaryForm

    Demand = Literal["commit", "comments"] | FileEvidence | CommandEvidence | SummaryEvidence

_MAX_OUTPUT_BYTES: Final = 64 * 1024  # of what a command printed
_MAX_DETAIL_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class ClaimedSuccess:
    """A success that an agent reported: its result, where it worked, and the pull request it was about, if any."""

    result: Mapping[str, Any]
    place: Workplace
    pull: PullRequest | None = None


async def check_evidence(
    demands: Sequence[Demand], claim: ClaimedSuccess, environment: Mapping[str, str], sandbox: Sandbox | None = None
) -> list[EvidenceCheck]:
    """Check what a success must show. Commands run in ``sandbox``: the agent may have written what they execute."""
    return [await _check_one(demand, claim, environment, sandbox) for demand in demands]


def evidence_error(checks: Sequence[EvidenceCheck]) -> str | None:
    """Return the error of a success whose evidence is missing, or None."""
    failed = [f"{check.name}: {check.detail}" for check in checks if not check.ok]
    return f"claimed success, but {'; '.join(failed)}" if failed else None


async def _check_one(
    demand: Demand, claim: ClaimedSuccess, environment: Mapping[str, str], sandbox: Sandbox | None
) -> EvidenceCheck:
    place = claim.place
    if isinstance(demand, SummaryEvidence):
        return _check_summary(demand.summary, text_of(claim.result, "summary"))
    if demand == "comments":
        return await _check_comments(claim)
    if isinstance(demand, FileEvidence):
        return _check_file(demand.file, place.folder)
    if isinstance(demand, CommandEvidence):
        return await _check_command(demand, place.folder, environment, sandbox)
    return await _check_commit(place)


async def _check_commit(place: Workplace) -> EvidenceCheck:
    """Check that the branch has new commits, and that they change something."""
    tree = place.tree
    if tree is None:
        return EvidenceCheck(name="commit", ok=False, detail="the task has no repository to commit to")
    try:
        tip = await tree.tip()
        if tip is None or tip == tree.base:
            return EvidenceCheck(name="commit", ok=False, detail=f"there is no commit on the branch {tree.branch}")
        if await tree.clone.tree_of(tip) == await tree.clone.tree_of(tree.base):
            return EvidenceCheck(name="commit", ok=False, detail=f"the commits on {tree.branch} change nothing")
    except GitError as error:
        return EvidenceCheck(name="commit", ok=False, detail=clean_line(str(error), _MAX_DETAIL_CHARS))
    return EvidenceCheck(name="commit", ok=True, detail=tip)


def _check_summary(form: SummaryForm, summary: str) -> EvidenceCheck:
    problem = None
    if form.begins_with and not summary.lstrip("*_#`> \n").startswith(tuple(form.begins_with)):
        problem = f"it begins with none of {', '.join(form.begins_with)}"
    elif len(summary.strip()) < form.min_chars:
        problem = f"it has {len(summary.strip())} characters, fewer than {form.min_chars}"
    elif form.max_lines is not None and (lines := len(summary.strip().splitlines())) > form.max_lines:
        problem = f"it has {lines} lines, more than {form.max_lines}"
    return EvidenceCheck(name="summary", ok=problem is None, detail=problem or f"{len(summary.strip())} characters")


async def _check_comments(claim: ClaimedSuccess) -> EvidenceCheck:
    try:
        comments = comments_of(claim.result)
    except ValueError as error:
        return EvidenceCheck(name="comments", ok=False, detail=clean_line(str(error), _MAX_DETAIL_CHARS))
    problem = await comments_problem(comments, claim.place, claim.pull)
    detail = f"{len(comments)} on lines of the change" if problem is None else clean_line(problem, _MAX_DETAIL_CHARS)
    return EvidenceCheck(name="comments", ok=problem is None, detail=detail)


def _check_file(relative: str, folder: Path) -> EvidenceCheck:
    name = f"file {relative}"
    try:
        found = (folder / relative).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return EvidenceCheck(name=name, ok=False, detail="it is not there")
    if not found.is_relative_to(folder.resolve()):
        return EvidenceCheck(name=name, ok=False, detail="it leads out of the worktree")
    if not found.is_file():
        return EvidenceCheck(name=name, ok=False, detail="it is not a file")
    return EvidenceCheck(name=name, ok=True, detail=f"{found.stat().st_size} bytes")


async def _check_command(
    demand: CommandEvidence, folder: Path, environment: Mapping[str, str], sandbox: Sandbox | None
) -> EvidenceCheck:
    name = clean_line(f"command {' '.join(demand.command)}")
    command, env = list(demand.command), inherited_environment(environment)
    try:
        if sandbox is not None and await asyncio.to_thread(sandbox.confines):
            env = sandbox.environment(env)
            command = sandbox.offline_command(folder, command, env)
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=env,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError, SandboxUnavailable) as error:
        return EvidenceCheck(
            name=name, ok=False, detail=f"it cannot be run: {clean_line(str(error), _MAX_DETAIL_CHARS)}"
        )
    try:
        async with asyncio.timeout(demand.timeout_seconds):
            said = await _read_output(process)
            code = await process.wait()
    except TimeoutError:
        return EvidenceCheck(name=name, ok=False, detail=f"it did not end within {demand.timeout_seconds:g} s")
    finally:
        await _kill_process_group(process)
    ended = (
        "it ended with 0"
        if code == 0
        else f"it ended with {code}: {clean_line(said, _MAX_DETAIL_CHARS) or 'it said nothing'}"
    )
    return EvidenceCheck(name=name, ok=code == 0, detail=ended)


async def _read_output(process: Process) -> str:
    assert process.stdout is not None
    said = b""
    while chunk := await process.stdout.read(_MAX_OUTPUT_BYTES):
        said = (said + chunk)[-_MAX_OUTPUT_BYTES:]
    return said.decode(errors="replace")[-_MAX_DETAIL_CHARS:]


async def _kill_process_group(process: Process) -> None:
    """Kill every process that the command left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    if process.stdout is not None:  # a grandchild in a session of its own may hold the pipe
        process._transport.close()  # type: ignore[attr-defined]
