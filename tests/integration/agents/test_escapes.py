"""A hostile agent in the sandbox: every attempt to get out is stopped, on this kernel."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.errors import SandboxUnavailable
from kingdom.agents.hosts import SHIM_COMMAND
from kingdom.agents.port import Timers
from kingdom.agents.sandbox import escapes, proof
from kingdom.agents.sandbox.limits import DEFAULTS, exceeded
from kingdom.agents.sandbox.sandbox import Bubblewrap, Sandbox, find_bubblewrap
from tests.support.cells import Cell
from tests.support.repositories import plain_git
from tests.support.workshop import alive

_FAKE_CLONE = """mkdir -p sub fake/worktrees/x && cd fake/worktrees/x && echo ../.. > commondir
echo {cwd}/sub/.git > gitdir && echo "gitdir: $PWD" > {cwd}/sub/.git
"""
_TRACES = ("leave_something_outside", "end_a_process_outside")


@pytest.fixture(scope="module")
def attempts(on_disk: None) -> dict[str, proof.Attempt]:
    sandbox = Sandbox("required")
    assert sandbox.confines()
    return {attempt.name: attempt for attempt in proof.prove(sandbox)}


@pytest.mark.parametrize("name", [*escapes.ATTEMPTS, *_TRACES])
def test_an_agent_cannot(name: str, attempts: dict[str, proof.Attempt]) -> None:
    assert not attempts[name].escaped, attempts[name].detail


@pytest.mark.parametrize("name", ["read_a_secret_file", "connect_to_a_service_of_this_machine", "write_outside"])
def test_without_a_sandbox_the_same_attempts_succeed(name: str, tmp_path: Path) -> None:
    """The attempts are real: an agent that is not confined gets out."""
    with proof.bait(tmp_path) as bait:
        found = escapes.ATTEMPTS[name](bait)
        assert found or (tmp_path / "outside" / "escaped").exists()


# ── a worktree ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return Cell(tmp_path)


async def test_an_editor_commits_to_its_own_branch(cell: Cell) -> None:
    outcome, said = await cell.run("echo x > new.txt && git add . && git commit -q -m 'Add new' && git log --oneline")
    assert outcome.status == "success", said
    assert plain_git(cell.cwd, "log", "--format=%s", "-1").strip() == "Add new"


@pytest.mark.parametrize(
    "script",
    [
        "echo evil > {git}/hooks/pre-commit",
        "mkdir -p {git}/hooks && ln -s /bin/true {git}/hooks/post-checkout",
        "git config core.fsmonitor 'touch /tmp/x'",
        "git config --worktree core.hooksPath /tmp",
        "echo '* filter=evil' > {git}/info/attributes",
        "echo evil > {git}/worktrees/w1/commondir || echo /tmp > {admin}/commondir",
        "echo /tmp/evil > {admin}/gitdir",
        "echo 'gitdir: /tmp/evil' > .git",
        "mv .git .git-old && mkdir .git",
        "rm -f .git && git init -q .",
        "git commit --allow-empty -m x && git update-ref refs/heads/main HEAD",
        "git commit -q --allow-empty -m x && git update-ref refs/heads/kingdom/w2/app HEAD",
        "git branch -D main",
        "git tag evil",
        "git worktree remove --force {other}",
        "git worktree add /tmp/another main",
        "rm -rf {git}/objects/pack/* && touch {git}/objects/pack/evil",
        "echo x > {git}/packed-refs",
        "echo x > {git}/HEAD",
        "git remote add evil https://example.com/evil.git",
    ],
)
async def test_of_git_it_can_change_nothing_else(cell: Cell, script: str) -> None:
    admin = Path((cell.cwd / ".git").read_text().removeprefix("gitdir: ").strip())
    before = _git_state(cell)
    _, said = await cell.run(script.format(git=cell.git, admin=admin, other=cell.other))
    assert _git_state(cell) == before, said


def _git_state(cell: Cell) -> dict[str, Any]:
    """All of the clone but what a commit in this worktree writes."""
    admin = Path((cell.cwd / ".git").read_text().removeprefix("gitdir: ").strip())
    kept = [cell.git / name for name in ("HEAD", "config", "packed-refs", "index")]
    kept += [admin / "commondir", admin / "gitdir", admin / "config.worktree", cell.cwd / ".git"]
    folders = ("hooks", "info", "objects/pack", "objects/info", "refs/tags")
    kept += [path for name in folders for path in sorted((cell.git / name).rglob("*"))]
    state: dict[str, Any] = {str(path): path.read_bytes() for path in kept if path.is_file()}
    refs = plain_git(cell.clone, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    state["refs"] = [line for line in refs if not line.startswith("refs/heads/kingdom/w1/app ")]
    state["other"] = sorted(path.name for path in cell.other.iterdir())
    return state


async def test_other_worktrees_and_the_state_of_the_court_are_not_there(cell: Cell) -> None:
    (cell.other / "secret.txt").write_text("the-secret")
    (cell.root / "ledger").mkdir()
    (cell.root / "ledger" / "2026-01.jsonl").write_text("the-secret")
    _, said = await cell.run(
        f"cat {cell.other}/* {cell.root}/ledger/* {cell.root}/soldiers/*/order.json; ls {cell.git}/worktrees"
        f"; ls {cell.root}; git -C {cell.other} status"
        f"; grep -r the-secret {cell.root} /proc/self/root{cell.root} 2>/dev/null"
    )
    assert "the-secret" not in said
    # The folder has a random name, which may have these letters.
    assert "w2" not in said.replace(str(cell.other), "").replace(str(cell.root), "")


@pytest.mark.parametrize(
    "script",
    [
        "mkdir sub && ln -s {secret} sub/.git",
        "mkdir -p sub/.git && ln -s {secret} sub/.git/hooks",
        "mkdir -p sub/.git && ln -s {secret}/key sub/.git/config",
        "ln -s {secret}/key {admin}/locked",
        "ln -s {secret}/key {admin}/config.worktree",
        _FAKE_CLONE + "ln -s {secret} ../../objects",
        _FAKE_CLONE + "ln -s . ../../objects && ln -s {secret} ../../pack",
    ],
)
async def test_links_that_a_run_leaves_show_the_next_one_nothing(cell: Cell, script: str) -> None:
    """A worktree is used by several runs: a task that is resumed or tried again, the works of a workflow."""
    admin = Path((cell.cwd / ".git").read_text().removeprefix("gitdir: ").strip())
    secret = cell.root / "secret"
    secret.mkdir()
    (secret / "key").write_text("the-secret")
    first, said = await cell.run(script.format(secret=secret, admin=admin, cwd=cell.cwd))
    assert first.status == "success", said
    _, said = await cell.run(f"echo looking; cat {secret}/key {admin}/locked; touch {secret}/made")
    assert "looking" in said
    assert "the-secret" not in said
    assert [path.name for path in secret.iterdir()] == ["key"]


@pytest.mark.parametrize("branch", ["main", "kingdom/w2/app"])
async def test_a_run_that_names_another_branch_as_its_own_does_not_move_it(cell: Cell, branch: str) -> None:
    before = _git_state(cell)
    await cell.run(f"git symbolic-ref HEAD refs/heads/{branch}")
    _, said = await cell.run("git commit -q --allow-empty -m evil")
    assert _git_state(cell) == before, said
    plain_git(cell.cwd, "symbolic-ref", "HEAD", "refs/heads/kingdom/w1/app")
    outcome, said = await cell.run("git commit -q --allow-empty -m good")
    assert outcome.status == "success", said


async def test_a_reader_changes_nothing_but_its_result(cell: Cell) -> None:
    script = 'touch made; git commit --allow-empty -m x; echo \'{"status": "success"}\' > $KINGDOM_RESULT_PATH'
    outcome, said = await cell.run(script, profile="read")
    assert outcome.status == "success", said
    assert said.count("Read-only file system") == 2
    assert not (cell.cwd / "made").exists()
    assert plain_git(cell.cwd, "log", "--format=%s").split() == ["first"]


async def test_nothing_outlives_a_run_that_is_stopped(cell: Cell) -> None:
    script = (
        "setsid sleep 300 & (env -i setsid sleep 300 &) & nohup sleep 300 & trap '' INT TERM; echo ready; sleep 300"
    )
    runner = cell.runner()
    order = cell.order(script)
    ready = asyncio.Event()
    running = await runner.start(order, lambda event: ready.set())
    try:
        await asyncio.wait_for(ready.wait(), 60)
        await running.stop("enough")
        outcome = await running.wait()
    finally:
        await runner.close()
    assert outcome.status == "killed"
    assert alive(order.run_id) == []


async def test_an_agent_that_handles_the_interrupt_may_finish(cell: Cell) -> None:
    """bubblewrap would end it at once if the signal reached bubblewrap itself."""
    script = "trap 'echo bye; echo saved > saved.txt; exit 0' INT; echo ready; for i in $(seq 600); do sleep 0.1; done"
    runner = cell.runner()
    order = cell.order(script, timers=Timers(first_output=60, silence=60, total=60, stop=30))
    ready = asyncio.Event()
    running = await runner.start(order, lambda event: ready.set())
    try:
        await asyncio.wait_for(ready.wait(), 60)
        await running.stop("enough")
        await running.wait()
    finally:
        await runner.close()
    assert (cell.cwd / "saved.txt").read_text() == "saved\n"


async def test_a_sandbox_that_cannot_be_made_is_said_and_nothing_runs_without_it(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_bubblewrap()
    broken = replace(found, options=(*found.options, "--ro-bind", "/there/is/no/such/folder", "/mnt"))
    monkeypatch.setattr("kingdom.agents.sandbox.sandbox.find_bubblewrap", lambda: broken)
    outcome, _ = await cell.run("echo ran > ran.txt")
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert "could not be started: bwrap: Can't find source path /there/is/no/such/folder" in outcome.error
    assert not (cell.cwd / "ran.txt").exists()


async def test_where_nothing_can_confine_auto_runs_and_required_does_not(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Bubblewrap(None, problem="there is no program bwrap on the PATH: install bubblewrap")
    monkeypatch.setattr("kingdom.agents.sandbox.sandbox.find_bubblewrap", lambda: missing)
    with pytest.raises(SandboxUnavailable, match="install bubblewrap"):
        await cell.run("true")
    assert not Sandbox("auto").confines()
    assert str(Sandbox("auto").problem()).startswith("agents are not confined: there is no program bwrap")
    with pytest.raises(SandboxUnavailable):
        Sandbox("auto").confines("required")


async def test_a_folder_with_an_odd_name_is_confined_too(cell: Cell, tmp_path: Path) -> None:
    folder = tmp_path / "a folder with 'quotes', \"more\" and ünïcode"
    folder.mkdir()
    outcome, said = await cell.run("echo ran > ran.txt", cwd=folder)
    assert outcome.status == "success", said
    assert (folder / "ran.txt").exists()


# ── the result ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "script",
    [
        "ln -s {secret} $KINGDOM_RESULT_PATH",
        "ln {secret} $KINGDOM_RESULT_PATH",
        "mkfifo $KINGDOM_RESULT_PATH",
        "mkdir $KINGDOM_RESULT_PATH && ln -s {secret} $KINGDOM_RESULT_PATH/result.json",
        "cd $(dirname $KINGDOM_RESULT_PATH) && mv $PWD ../moved && ln -s $(dirname {secret}) $OLDPWD",
        "P=$KINGDOM_RESULT_PATH; (while :; do ln -sfn {secret} $P; echo '{{}}' > r; mv r $P; done) & sleep 0.3",
    ],
    ids=["link", "hard link", "pipe", "folder", "folder above", "race"],
)
async def test_the_result_path_leads_nowhere_else(cell: Cell, script: str) -> None:
    secret = cell.root / "elsewhere" / "result.json"
    secret.parent.mkdir()
    secret.write_text('{"status": "success", "summary": "the-secret"}')
    outcome, _ = await cell.run(script.format(secret=secret))
    assert "the-secret" not in str(outcome)
    assert secret.read_text() == '{"status": "success", "summary": "the-secret"}'
    outcome, said = await cell.run("echo fine")  # the next attempt at the task
    assert outcome.status == "success", said


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fork_bomb_ends_the_run_with_its_name(cell: Cell) -> None:
    cell.limits = {"processes": 60}
    outcome, _ = await cell.run("bomb() { bomb | bomb & }; bomb; sleep 60")
    assert outcome.status == "failed"
    assert "it started more processes than it may" in str(outcome.error)


async def test_endless_memory_ends_the_run_with_its_name(cell: Cell) -> None:
    cell.limits = {"memory_bytes": 300 * 1024**2}
    outcome, _ = await cell.run("python3 -c 'x = [bytearray(10_000_000) for _ in range(10_000)]'; sleep 60")
    assert outcome.status == "failed"
    assert "it used more memory than it may" in str(outcome.error)


def test_memory_and_processes_are_watched_without_a_control_group_too() -> None:
    spent = [DEFAULTS | {"memory_bytes": 1}, DEFAULTS | {"processes": 1}, DEFAULTS | {"disk_bytes": -1}, DEFAULTS]
    found = [exceeded([os.getpid()], limits) for limits in spent]
    assert found == ["memory_bytes", "processes", "disk_bytes", None]


async def test_an_endless_file_stops_at_its_limit(cell: Cell) -> None:
    cell.limits = {"file_bytes": 1024**2}
    outcome, said = await cell.run("head -c 5000000 /dev/zero > big; stat -c %s big; exit 7")
    assert outcome.exit_code == 7, said
    assert (cell.cwd / "big").stat().st_size == 1024**2


async def test_an_agent_that_writes_an_endless_file_itself_ends_with_its_name(cell: Cell) -> None:
    cell.limits = {"file_bytes": 1024**2}
    outcome, _ = await cell.run("exec cat /dev/zero > big")
    assert outcome.status == "failed"
    assert "it wrote a larger file than it may" in str(outcome.error)


async def test_endless_files_end_the_run_with_their_name(cell: Cell) -> None:
    cell.limits = {"disk_bytes": 20 * 1024**2}
    script = "i=0; while :; do i=$((i+1)); head -c 2000000 /dev/zero > big-$i; sync -d big-$i; sleep 0.05; done"
    outcome, _ = await cell.run(script)
    assert outcome.status == "failed"
    assert "it wrote more to the disk than it may" in str(outcome.error)
    assert sum(path.stat().st_size for path in cell.cwd.glob("big-*")) < 500 * 1024**2


async def test_a_run_leaves_no_control_group(cell: Cell) -> None:
    order = cell.order("cat /proc/self/cgroup")
    runner = cell.runner()
    await (await runner.start(order)).wait()
    await runner.close()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/kingdom-run-{order.run_id}"))


@pytest.mark.parametrize("gone", [True, False])
async def test_a_run_that_was_given_up_before_its_shim_came_leaves_no_control_group(cell: Cell, gone: bool) -> None:
    """A daemon may be killed while its shim starts, and the next one gives the run up."""
    order = cell.order("echo ran > ran.txt")
    runner = cell.runner()
    await (await runner.start(order)).wait()
    await runner.close()
    (cell.cwd / "ran.txt").unlink()
    folder = cell.root / "soldiers" / order.run_id
    late = cell.root / "late.json"
    late.write_bytes((folder / "spec.json").read_bytes())
    shutil.rmtree(folder)
    if not gone:
        folder.mkdir()
        (folder / "identity.json").write_text('{"given_up": true}')
    assert subprocess.run([*SHIM_COMMAND, str(late)], check=False).returncode == 3
    assert not (cell.cwd / "ran.txt").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/kingdom-run-{order.run_id}"))
