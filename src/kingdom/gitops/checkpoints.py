"""Checkpoints: commits of a Work's result, all or none over several repositories.

The caller stores three steps, and after a crash between two of them it finishes or undoes the checkpoint:

1. *intent*: which checkpoint of which worktrees. Then :meth:`Checkpoints.prepare` makes commits under
   ``refs/kingdom/pending``; no branch moves.
2. *commits*: what ``prepare`` returned. Then :meth:`Checkpoints.complete` stores each commit under
   ``refs/kingdom/checkpoints`` and moves its branch to it.
3. *done*.

After a crash with an intent but no commits: :meth:`Checkpoints.undo`, then start again. With commits but not done:
:meth:`Checkpoints.complete` again; it does what is missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.gitops.commits import Clock, CommitAuthor, independent, make_commit, read_commits, system_clock
from kingdom.gitops.errors import CheckpointConflict, InvalidInput
from kingdom.gitops.names import check_hash, check_id, checkpoint_ref, checkpoints_of, is_hash, pending_of, pending_ref
from kingdom.gitops.repository import ORIGIN_REFS
from kingdom.gitops.worktree import refuse_large, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.gitops.commits import Commit
    from kingdom.gitops.repository import Clone
    from kingdom.gitops.worktree import Worktree


_CHECKED_FILE: Final = "checked"  # in the state folder: the last commit whose files are known not to be too large


@dataclass(frozen=True)
class CheckpointMark:
    """Identifies a checkpoint: workflow, Work and attempt."""

    workflow: str
    checkpoint: str
    work: str
    attempt: int = 1
    title: str = ""

    def __post_init__(self) -> None:
        for what in ("workflow", "checkpoint", "work"):
            check_id(what, getattr(self, what))
        if not isinstance(self.attempt, int) or self.attempt < 1:
            raise InvalidInput(f"attempt {self.attempt!r}: a number from 1 is needed")

    @property
    def trailers(self) -> dict[str, str]:
        """The trailers of the commit's message."""
        return {
            "Kingdom-Workflow": self.workflow,
            "Kingdom-Work": self.work,
            "Kingdom-Attempt": str(self.attempt),
            "Kingdom-Checkpoint": self.checkpoint,
        }


@dataclass(frozen=True)
class CheckpointCommit:
    """The commit of a checkpoint in one worktree."""

    worktree: str
    commit: str
    tree: str
    previous: str
    """The former tip of the branch."""

    def to_dict(self) -> dict[str, str]:
        """Return it as plain strings, for a store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> CheckpointCommit:
        """Return it from what :meth:`to_dict` returned."""
        check_id("worktree", stored["worktree"])
        for name in ("commit", "tree", "previous"):
            check_hash(name, stored[name])
        return cls(**{name: stored[name] for name in ("worktree", "commit", "tree", "previous")})


class Checkpoints:
    """Makes, finishes and undoes checkpoints."""

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        identity: CommitAuthor | None = None,
        max_file_bytes: int | None = None,
    ) -> None:
        """``max_file_bytes``: the largest file that a checkpoint may add or change; None for any."""
        self._max_file_bytes = max_file_bytes
        self._clock = clock
        self._identity = identity or CommitAuthor()

    async def create(self, trees: Sequence[Worktree], mark: CheckpointMark) -> tuple[CheckpointCommit, ...]:
        """Prepare and complete in one call, for callers that store nothing in between."""
        prepared = await self.prepare(trees, mark)
        await self.complete(trees, mark, prepared)
        return prepared

    async def prepare(self, trees: Sequence[Worktree], mark: CheckpointMark) -> tuple[CheckpointCommit, ...]:
        """Make a commit in each worktree without moving a branch. If one fails, the others are undone.

        A complete checkpoint is returned as it is.
        """
        _check_trees(trees, mark)
        outcomes = await asyncio.gather(*(self._prepare(tree, mark) for tree in trees), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures:
            # Ignore errors here: the first error is the one to raise.
            await asyncio.gather(*(self._let_go(tree, mark) for tree in trees), return_exceptions=True)
            raise failures[0]
        return tuple(outcome for outcome in outcomes if isinstance(outcome, CheckpointCommit))

    async def complete(
        self, trees: Sequence[Worktree], mark: CheckpointMark, commits: Sequence[CheckpointCommit]
    ) -> None:
        """Hold each commit under its checkpoint ref and move the branches. May be repeated at any time."""
        _check_trees(trees, mark)
        by_name = {commit.worktree: commit for commit in commits}
        if set(by_name) != {tree.name for tree in trees}:
            raise InvalidInput(f"checkpoint {mark.checkpoint}: the commits are not those of the worktrees given")
        await asyncio.gather(*(self._complete(tree, mark, by_name[tree.name]) for tree in trees))

    async def undo(self, trees: Sequence[Worktree], mark: CheckpointMark) -> None:
        """Undo a checkpoint that was prepared, or completed in some worktrees only. No file is touched."""
        _check_trees(trees, mark)
        await asyncio.gather(*(self._undo(tree, mark) for tree in trees))

    async def pending(self, clone: Clone, workflow: str) -> dict[str, str]:
        """Return the commits of a workflow's prepared, incomplete checkpoints, by checkpoint."""
        prefix = pending_of(workflow)
        return {name.removeprefix(prefix): value for name, value in (await clone.refs(prefix)).items()}

    async def list(self, clone: Clone, workflow: str) -> dict[str, str]:
        """Return the commits of a workflow's checkpoints, by checkpoint."""
        prefix = checkpoints_of(workflow)
        return {name.removeprefix(prefix): value for name, value in (await clone.refs(prefix)).items()}

    async def keep(self, clone: Clone, workflow: str, checkpoint: str, commit: str) -> None:
        """Hold an existing commit under the ref of another checkpoint. May be repeated."""
        await clone.update_refs([f"update {checkpoint_ref(workflow, checkpoint)} {commit}"])

    async def remove(self, clone: Clone, workflow: str, checkpoint: str) -> None:
        """Delete a checkpoint's ref. Its commit stays while a branch or a rescue holds it."""
        ref = checkpoint_ref(workflow, checkpoint)
        if ref in await clone.refs(checkpoints_of(workflow)):
            await clone.update_refs([f"delete {ref}"])

    async def _prepare(self, tree: Worktree, mark: CheckpointMark) -> CheckpointCommit:
        async with tree.hold() as held:
            clone, pin = tree.clone, checkpoint_ref(mark.workflow, mark.checkpoint)
            done, head, tip = await clone.commits_of(pin, held.head_name(), tree.ref)
            if done is not None:
                return _described(tree, mark, await _read_commit(clone, done))
            stored = await snapshot(held, max_file_bytes=self._max_file_bytes)
            tip = tip or tree.base
            await self._check_own_commits(tree, {tip, head or tip})
            parents = await independent(clone, head, tip)
            trailers = {**mark.trailers, "Kingdom-Worktree": tree.name, "Kingdom-Previous": tip}
            title = mark.title or f"Checkpoint {mark.checkpoint} after work {mark.work}"
            commit = await make_commit(clone, stored, parents, title, trailers, self._identity, self._clock())
            await clone.update_refs([f"update {pending_ref(mark.workflow, mark.checkpoint)} {commit}"])
            held.adopt_next_index()
            return CheckpointCommit(tree.name, commit, stored, tip)

    async def _check_own_commits(self, tree: Worktree, tips: set[str]) -> None:
        """Raise :class:`FilesTooLarge` if commits that the agent made have files over the largest allowed size."""
        checked = tree.state_folder / _CHECKED_FILE
        known = {tree.base, checked.read_text() if checked.is_file() else ""}
        if self._max_file_bytes is None or not (new := sorted(tips - known)):
            return
        held_by = f"--glob={checkpoints_of(tree.workflow)}*", f"--glob={ORIGIN_REFS}*"
        listed = await tree.clone.run("rev-list", "--objects", *new, "--not", tree.base, *held_by)
        words = ("cat-file", "--batch-check=%(objecttype) %(objectsize) %(rest)")
        found = await tree.clone.run(*words, stdin=listed.text.encode("utf-8", "surrogateescape") + b"\n")
        objects = (line.split(" ", 2) for line in found.text.splitlines())
        refuse_large({rest[1]: int(rest[0]) for kind, *rest in objects if kind == "blob"}, self._max_file_bytes)

    async def _complete(self, tree: Worktree, mark: CheckpointMark, made: CheckpointCommit) -> None:
        clone = tree.clone
        pin, pending = checkpoint_ref(mark.workflow, mark.checkpoint), pending_ref(mark.workflow, mark.checkpoint)
        async with tree.hold() as held:
            pinned, prepared, commit, tip = await clone.commits_of(pin, pending, made.commit, tree.ref)
            if pinned not in (None, made.commit):
                raise CheckpointConflict(
                    f"checkpoint {mark.checkpoint} of {tree.branch} is {pinned}, not {made.commit}"
                )
            if pinned and prepared is None:
                return  # completed earlier; the branch may have moved since
            if commit is None:
                raise clone.commit_missing(made.commit)
            if tip not in (made.previous, made.commit, None):
                raise CheckpointConflict(
                    f"{tree.branch} moved to {tip} after the checkpoint was prepared: is something still at work there?"
                )
            (tree.state_folder / _CHECKED_FILE).write_text(made.commit)
            held.publish()
            # git writes new values before it deletes: while the pending ref is there, something may be left to do.
            changes = [f"update {pin} {made.commit}", f"update {tree.ref} {made.commit}", f"delete {pending}"]
            await clone.update_refs(changes[: 2 if prepared is None else 3])

    async def _let_go(self, tree: Worktree, mark: CheckpointMark) -> None:
        """Delete a prepared, incomplete commit."""
        pending = pending_ref(mark.workflow, mark.checkpoint)
        async with tree.hold(check=False) as held:
            if await tree.clone.commit_of(pending) is not None:
                await tree.clone.update_refs([f"delete {pending}"])
                held.discard_index()  # it names objects that may be pruned now

    async def _undo(self, tree: Worktree, mark: CheckpointMark) -> None:
        clone = tree.clone
        pin, pending = checkpoint_ref(mark.workflow, mark.checkpoint), pending_ref(mark.workflow, mark.checkpoint)
        async with tree.hold(check=False) as held:
            commit = await clone.commit_of(pending) or await clone.commit_of(pin)
            if commit is None:
                return
            made = _described(tree, mark, await _read_commit(clone, commit))
            changes = [f"delete {ref}" for ref in (pin, pending) if await clone.commit_of(ref) == commit]
            if await tree.tip() == commit:
                changes.append(f"update {tree.ref} {made.previous} {commit}")
            await clone.update_refs(changes)
            held.discard_index()


async def _read_commit(clone: Clone, commit: str) -> Commit:
    (found,) = await read_commits(clone, commit, history=False)
    return found


def _described(tree: Worktree, mark: CheckpointMark, commit: Commit) -> CheckpointCommit:
    expected = {**mark.trailers, "Kingdom-Worktree": tree.name}
    trailers = commit.trailers
    previous = trailers.get("Kingdom-Previous", "")
    if any(trailers.get(name) != value for name, value in expected.items()) or not is_hash(previous):
        raise CheckpointConflict(
            f"checkpoint {mark.checkpoint} of workflow {mark.workflow} is {commit.hash}, which was made for {trailers}"
        )
    return CheckpointCommit(tree.name, commit.hash, commit.tree, previous)


def _check_trees(trees: Sequence[Worktree], mark: CheckpointMark) -> None:
    if not trees:
        raise InvalidInput(f"checkpoint {mark.checkpoint}: no worktree given")
    if any(tree.workflow != mark.workflow for tree in trees):
        raise InvalidInput(f"checkpoint {mark.checkpoint}: a worktree is not one of workflow {mark.workflow}")
    if len({tree.clone.folder for tree in trees}) != len(trees) or len({tree.name for tree in trees}) != len(trees):
        raise InvalidInput(f"checkpoint {mark.checkpoint}: two worktrees of one clone need a checkpoint each")


# ── verification ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RecordedCheckpoint:
    """A checkpoint as the caller recorded it."""

    workflow: str
    checkpoint: str
    commit: str
    tree: str
    branch: str | None = None
    """A branch that must contain it."""

    def __post_init__(self) -> None:
        checkpoint_ref(self.workflow, self.checkpoint)
        check_hash("commit", self.commit)
        check_hash("tree", self.tree)


@dataclass(frozen=True)
class CheckpointProblem:
    """What is wrong with a recorded checkpoint."""

    recorded: RecordedCheckpoint
    what: str


async def verify(
    clone: Clone, recorded: Iterable[RecordedCheckpoint], *, deep: bool = False
) -> list[CheckpointProblem]:
    """Check that recorded commits of one clone exist, are held by their refs and have the recorded trees.

    A commit with a ``branch`` must be in the history of that branch. ``deep`` also checks every file. Return
    the problems.
    """
    records = list(recorded)
    if not records:
        return []
    refs = await clone.refs("refs/kingdom/checkpoints/")
    asked = "".join(f"{record.commit}^{{tree}}\n{record.commit}\n" for record in records).encode()
    answers = (await clone.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)).text.splitlines()
    problems = []
    for record, tree, commit in zip(records, answers[::2], answers[1::2], strict=True):
        ref = checkpoint_ref(record.workflow, record.checkpoint)
        if commit != f"{record.commit} commit":
            problems.append(CheckpointProblem(record, f"commit {record.commit} does not exist"))
        elif tree.endswith(" missing"):
            problems.append(CheckpointProblem(record, f"the tree {record.tree} does not exist"))
        elif tree != f"{record.tree} tree":
            problems.append(CheckpointProblem(record, f"its tree is {tree.split()[0]}, and {record.tree} was recorded"))
        elif refs.get(ref) != record.commit:
            holds = f"it is at {refs[ref]}" if ref in refs else "there is no such ref"
            problems.append(CheckpointProblem(record, f"{ref} does not hold the commit: {holds}"))
        elif record.branch is not None and (lost := await _lost_by_branch(clone, record.branch, record.commit)):
            problems.append(CheckpointProblem(record, lost))
        elif deep and (missing := await clone.missing_objects(record.commit)):
            problems.append(CheckpointProblem(record, f"not all of it is there: {missing}"))
    return problems


async def _lost_by_branch(clone: Clone, branch: str, commit: str) -> str | None:
    """Return what is wrong if a commit is not in the history of a branch."""
    tip = await clone.commit_of(f"refs/heads/{branch}")
    if tip is None:
        return f"the branch {branch} is gone"
    if tip == commit or await clone.is_ancestor(commit, tip):
        return None
    return f"the branch {branch} is at {tip} and lacks the commit {commit}"
