"""The command line itself: help, versions, errors, colours, interruptions."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import kingdom as package
from tests.support.command import COMMAND, environment, kingdom, kingdom_tty


def test_version() -> None:
    result = kingdom("--version")
    assert (result.returncode, result.stdout) == (0, f"kingdom {package.__version__}\n")


NO_XDG = {"XDG_CONFIG_HOME": "", "XDG_DATA_HOME": ""}  # else files would go outside the folder of the test


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kingdom st", ["status", "stats"]),
        ("kingdom bus de", ["depth", "dead", "demo"]),
        ("kingdom bus depth --wa", ["--watch"]),
        ("kingdom bus demo --transport ", ["sqlite", "files"]),
    ],
)
def test_bash_completes_commands_options_and_choices(typed: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "kingdom").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (tmp_path / "kingdom").chmod(0o755)
    script = kingdom("--show-completion", SHELL="/bin/bash").stdout
    words = typed.split(" ")
    script += f"COMP_WORDS=({shlex.join(words)})\nCOMP_CWORD={len(words) - 1}\n"
    script += "_kingdom_completion kingdom\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    found = environment(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", script], env=found, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == offered


@pytest.mark.parametrize(
    ("shell", "script", "start_file"),
    [
        ("bash", ".local/share/kingdom/completion.bash", ".bashrc"),
        ("zsh", ".local/share/kingdom/completion.zsh", ".zshrc"),
        ("fish", ".config/fish/completions/kingdom.fish", None),
    ],
)
def test_completion_is_installed_once(shell: str, script: str, start_file: str | None, tmp_path: Path) -> None:
    if start_file:
        (tmp_path / start_file).write_text("alias k=kingdom")
    for _ in range(2):
        done = kingdom("--install-completion", SHELL=f"/usr/bin/{shell}", HOME=str(tmp_path), **NO_XDG)
        assert done.returncode == 0, done.stderr
        assert str(tmp_path / script) in done.stdout
    assert "_KINGDOM_COMPLETE" in (tmp_path / script).read_text()
    if start_file:
        assert (tmp_path / start_file).read_text() == f'alias k=kingdom\nsource "{tmp_path / script}"\n'


def test_a_shell_without_completion_is_named(tmp_path: Path) -> None:
    done = kingdom("--install-completion", SHELL="/bin/tcsh", HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: SHELL names tcsh: there is completion for bash, zsh, fish\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_alone_it_shows_its_help(arguments: tuple[str, ...]) -> None:
    result = kingdom(*arguments)
    assert result.returncode == 0
    assert "demo" in result.stdout
    assert "bus" in result.stdout


def test_the_bus_group_alone_lists_its_commands() -> None:
    result = kingdom("bus")
    assert result.returncode == 0
    for command in ("depth", "dead", "show", "requeue", "purge", "migrate", "doctor", "bench", "metrics"):
        assert f"\n  {command} " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("bus", "dept", "--url", "memory:"), "Did you mean 'depth'"),
        (("bus", "depth"), "KINGDOM_BUS_URL"),
        (("bus", "purge", "--url", "memory:", "--older-than", "7 weeks"), "write 30s, 15m, 2h or 7d"),
        (("bus", "requeue", "s", "--url", "memory:"), "say which events"),
        (("bus", "requeue", "s", "--url", "memory:", "--all", "--id", "x"), "say which events"),
        (("bus", "depth", "--url", "memory:", "--watch", "--json"), "--watch and --json cannot be combined"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    result = kingdom(*arguments)
    assert result.returncode == 2
    spoken = result.stdout + result.stderr
    if "--json" in arguments:
        assert said in json.loads(result.stdout)["error"]["message"]
    else:
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    assert said in spoken
    assert "Traceback" not in spoken


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("gopher://somewhere", "UNKNOWN_TRANSPORT"),
        ("no url at all", "UNKNOWN_TRANSPORT"),
        ("sqlite://host/file.db", "INVALID_OPTION"),
    ],
)
def test_an_error_of_the_bus_is_one_line_and_exit_code_1(url: str, code: str) -> None:
    result = kingdom("bus", "depth", "--url", url)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1

    document = kingdom("bus", "depth", "--url", url, "--json")
    assert (document.returncode, document.stderr) == (1, "")
    error = json.loads(document.stdout)["error"]
    assert error["code"] == code
    assert f"error: {error['message']}\n" == result.stderr


def test_a_database_that_is_away_is_one_clear_line_without_the_password() -> None:
    result = kingdom("bus", "depth", "--url", "postgresql://me:secret@127.0.0.1:1/db")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr
    assert "secret" not in result.stderr


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = kingdom("bus", "migrate", "--url", f"sqlite://{tmp_path}/file/bus.db")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr


def test_errors_are_red_on_a_terminal_unless_no_color_is_set() -> None:
    arguments = ("bus", "depth", "--url", "gopher://somewhere")
    assert "\x1b[31merror:\x1b[0m" in kingdom_tty(*arguments)[1]
    assert "\x1b" not in kingdom_tty(*arguments, NO_COLOR="1")[1]


def test_the_url_may_come_from_the_environment(tmp_path: Path) -> None:
    result = kingdom("bus", "migrate", KINGDOM_BUS_URL=f"sqlite://{tmp_path}/bus.db")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "bus.db").exists()


def test_an_interruption_is_quiet_and_exits_130(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/bus.db"
    assert kingdom("bus", "migrate", "--url", url).returncode == 0
    with subprocess.Popen(
        [*COMMAND, "bus", "metrics", "--url", url, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert "serving" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=30)
    assert (process.returncode, complaints) == (130, "")
