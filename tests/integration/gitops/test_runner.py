"""Calling git: limits that hold, errors that say what happened, and an environment made from nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest

from kingdom.gitops import (
    CommandFailed,
    CommandTimedOut,
    Credentials,
    GitLocation,
    GitNotUsable,
    GitRunner,
    OutputTooLarge,
    RemoteAccess,
)
from kingdom.gitops.names import check_url


def program(folder: Path, text: str) -> str:
    """A program that is called in git's place."""
    path = folder / "fake-git"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


async def gone(pid: int) -> None:
    while alive(pid):
        await asyncio.sleep(0.01)


FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(os.path.join(os.path.dirname(__file__), "pids.new"), "w").write(f"{os.getpid()} {child.pid}")
os.rename(os.path.join(os.path.dirname(__file__), "pids.new"), os.path.join(os.path.dirname(__file__), "pids"))
"""


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


async def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    git = GitRunner(program(tmp_path, FAMILY + "time.sleep(600)"), timeout=2)
    with pytest.raises(CommandTimedOut, match="no end within 2 s") as caught:
        await git.run(GitLocation(tmp_path), "status")
    assert caught.value.code is None
    for pid in pids(tmp_path):
        await gone(pid)


async def test_a_caller_that_gives_up_leaves_no_process_behind(tmp_path: Path) -> None:
    git = GitRunner(program(tmp_path, FAMILY + "time.sleep(600)"))
    running = asyncio.create_task(git.run(GitLocation(tmp_path), "status"))
    while not (tmp_path / "pids").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in pids(tmp_path):
        await gone(pid)


async def test_a_command_that_prints_too_much_is_killed(tmp_path: Path) -> None:
    endless = FAMILY + "while True: sys.stdout.write('x' * 65536)"
    git = GitRunner(program(tmp_path, endless), max_output=100_000)
    with pytest.raises(OutputTooLarge, match="more than 100000 bytes"):
        await git.run(GitLocation(tmp_path), "log")
    for pid in pids(tmp_path):
        await gone(pid)


async def test_a_command_may_be_cut_off_on_purpose(tmp_path: Path) -> None:
    git = GitRunner(program(tmp_path, "import sys\nwhile True: sys.stdout.write('x' * 65536)"))
    result = await git.run(GitLocation(tmp_path), "log", truncate_at=1000)
    assert (result.truncated, len(result.out)) == (True, 1000)


async def test_endless_complaints_are_cut_too(tmp_path: Path) -> None:
    git = GitRunner(program(tmp_path, "import sys\nsys.stderr.write('no ' * 1_000_000)\nsys.exit(3)"))
    with pytest.raises(CommandFailed) as caught:
        await git.run(GitLocation(tmp_path), "log")
    assert caught.value.code == 3
    assert len(caught.value.said) <= 64 * 1024


async def test_input_that_is_not_read_is_no_error_of_ours(tmp_path: Path) -> None:
    git = GitRunner(program(tmp_path, "import sys\nsys.exit(0)"))
    assert (await git.run(GitLocation(tmp_path), "x", stdin=b"x" * 10_000_000)).code == 0


async def test_an_error_has_the_command_the_code_and_gits_own_words(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        await GitRunner().run(GitLocation(tmp_path / "nothing"), "cat-file", "-e", "a" * 40)
    error = caught.value
    assert error.command == ("git", "cat-file", "-e", "a" * 40)
    assert error.code == 128
    assert "not a git repository" in error.said
    assert "git cat-file" in str(error)
    assert "exit code 128" in str(error)


async def test_a_missing_git_is_named(tmp_path: Path) -> None:
    with pytest.raises(GitNotUsable, match="install git"):
        await GitRunner("no-such-git-anywhere").check_version()
    with pytest.raises(GitNotUsable, match="is gone"):
        await GitRunner().run(GitLocation(tmp_path, tmp_path / "gone"), "version")


async def test_an_old_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GitNotUsable, match=r"2\.38 or later"):
        await GitRunner(program(tmp_path, "print('git version 2.30.2')")).check_version()
    assert await GitRunner().check_version() >= (2, 38)


DUMP = "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv[1:]]))"


async def test_git_sees_nothing_of_its_callers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_PROXY_COMMAND", "LD_PRELOADED",
             "GIT_TRACE", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "XDG_CONFIG_HOME", "GIT_INDEX_FILE", "EDITOR",
             "PAGER"]  # fmt: skip
    for name in names:
        monkeypatch.setenv(name, "evil")
    remote_url = check_url("https://git.example.com/acme/app")
    monkeypatch.setenv("HOME", "/home/somebody")
    git = GitRunner(program(tmp_path, DUMP), access=RemoteAccess(Credentials(environ={}), environment={"TOKEN": "t"}))
    local, words = json.loads((await git.run(GitLocation(tmp_path), "status")).text)
    assert "evil" not in local.values()
    assert not {"HOME", "TOKEN"} & set(local)
    assert local["GIT_ALLOW_PROTOCOL"] == "none"
    assert local["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert f"--git-dir={tmp_path}" in words
    assert {"core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never"} <= set(words)

    remote, words = json.loads((await git.run_remote(GitLocation(tmp_path, remote=remote_url), "fetch")).text)
    assert "evil" not in remote.values()
    assert (remote["HOME"], remote["TOKEN"], remote["GIT_ALLOW_PROTOCOL"]) == ("/home/somebody", "t", "https")
    assert (remote["GIT_CONFIG_COUNT"], remote["GIT_CONFIG_KEY_0"], remote["GIT_CONFIG_VALUE_0"]) == (
        "1",
        "credential.helper",
        "",
    )


async def test_git_inherits_the_locks_it_works_under_and_nothing_else(tmp_path: Path) -> None:
    shown = "import os\nprint([fd for fd in range(65536) if os.path.exists(f'/proc/self/fd/{fd}')])"
    git = GitRunner(program(tmp_path, shown))
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "other").open("w") as other:
        os.set_inheritable(other.fileno(), False)
        result = await git.run(GitLocation(tmp_path, locks=(lock.fileno(),)), "x")
        opened = json.loads(result.text)
        assert lock.fileno() in opened
        assert other.fileno() not in opened
