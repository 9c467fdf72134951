"""The sandbox as a person meets it: proven, looked at from inside, and reported where it is missing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_clis import installed
from tests.support.command import COMMAND, environment, kingdom, kingdom_tty, run_tty
from tests.support.courts import Court, until

SPY = """\
import json, os, urllib.request
found = {"keys": os.path.exists(os.path.expanduser("~/.ssh")), "home": os.listdir(os.path.expanduser("~"))}
try:
    urllib.request.urlopen("http://example.com", timeout=20)
except OSError as error:
    found["network"] = str(error)
json.dump({"status": "success", "summary": json.dumps(found)}, open(os.environ["KINGDOM_RESULT_PATH"], "w"))
"""


@pytest.fixture
def court(tmp_path: Path, on_disk: None) -> Court:
    made = Court(tmp_path / "home")
    made.make()
    (made.root / "worker.py").write_text(SPY)
    return made


def confine(court: Court, mode: str) -> None:
    path = court.root / "config" / "system.yaml"
    path.write_text(path.read_text() + f"\nsandbox: {mode}\n")


def test_a_soldier_is_confined_its_refusals_are_in_the_journal_and_a_shell_sees_the_same(
    court: Court, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confine(court, "required")
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id_rsa").write_text("the-private-key")
    monkeypatch.setenv("HOME", str(user))
    with court.up():
        event_id = court.emit()
        task_id = court.task_of(event_id, "completed")["id"]
        result = json.loads((court.root / "state" / "results" / f"{task_id}.json").read_text())
        found = json.loads(result["summary"])
        assert (found["keys"], found["home"]) == (False, [])
        assert "403" in found["network"]
        until(lambda: "soldier.refused" in court.journal, "the refusal in the journal")
    refused = [json.loads(line) for line in court.journal.splitlines() if "soldier.refused" in line]
    assert refused[0]["data"]["task_id"] == task_id
    assert "example.com:80 is not among the hosts of this run" in refused[0]["data"]["reason"]

    shell = subprocess.run(
        [*COMMAND, "sandbox", "shell", task_id],
        input=f"ls ~/.ssh; cat {user}/.ssh/id_rsa; pwd; ls {court.root}\n",
        capture_output=True,
        text=True,
        env=environment(KINGDOM_HOME=str(court.root), SHELL="/bin/sh"),
        timeout=90,
        check=False,
    )
    assert "the-private-key" not in shell.stdout
    assert str(court.root) in shell.stdout, "it is in the worktree"
    assert "No such file" in shell.stderr
    assert "config" not in shell.stdout.split()


def test_what_runs_in_the_shell_cannot_type_into_the_terminal_of_the_person(court: Court) -> None:
    with court.up():
        task_id = court.task_of(court.emit(), "completed")["id"]
    inject = "import fcntl, termios; [fcntl.ioctl(0, termios.TIOCSTI, bytes([one])) for one in b'evil\\n']"
    shell = shlex.join([*COMMAND, "sandbox", "shell", task_id])
    outside = f'{shell}; code=$?; IFS= read -r -t 1 line; echo "ended with $code, typed: [$line]"'
    typed = f"pwd; {sys.executable} -c {shlex.quote(inject)}; exit 3\n"
    _, screen = run_tty(
        ["bash", "-c", outside], typed, ("# ", "$ "), KINGDOM_HOME=str(court.root), SHELL="/bin/sh", KINGDOM_SANDBOX=""
    )
    assert "ended with 3, typed: []" in screen, screen
    assert str(court.root) in screen


def test_check_makes_every_attempt_and_none_gets_out(court: Court) -> None:
    done = court.run("sandbox", "check", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["escaped"] == 0
    assert len(document["attempts"]) >= 60
    code, screen = kingdom_tty("sandbox", "check", KINGDOM_HOME=str(court.root))
    assert code == 0, f"on a terminal something got out that is stopped without one: {screen}"
    said = court.run("sandbox", "check").stdout
    assert "stopped  read a secret file" in said
    assert said.endswith("attempts, 0 got out\n")


def test_where_nothing_can_confine_it_is_said_and_required_starts_no_soldier(court: Court, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if program.name != "bwrap" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    without = {"PATH": str(programs), "KINGDOM_HOME": str(court.root), "KINGDOM_SANDBOX": "auto"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return kingdom(*words, **without)

    why = "agents are not confined: there is no program bwrap on the PATH: install bubblewrap"
    assert why in run("doctor").stdout
    assert run("status").stdout.count("agents are not confined") == 1
    problems = json.loads(run("status", "--json").stdout)["problems"]
    assert ("sandbox", why) in [(one["what"], one["why"]) for one in problems]
    without["KINGDOM_SANDBOX"] = "perhaps"
    assert "KINGDOM_SANDBOX='perhaps' is invalid: use off, auto or required" in run("status").stdout
    without["KINGDOM_SANDBOX"] = "auto"
    failed = run("sandbox", "check")
    assert failed.returncode == 1
    assert "install bubblewrap" in failed.stderr
    confine(court, "required")
    assert "agents do not start: there is no program bwrap" in run("doctor").stdout


def test_a_wrong_setting_is_said(court: Court) -> None:
    confine(court, "{mode: auto, network: ['10.0.0.1:80'], read: [/]}")
    done = court.call("doctor")
    assert "is an address: name the host instead" in done.stdout
    assert "is too much: name a folder in it" in done.stdout


def test_a_general_can_only_be_stricter(court: Court) -> None:
    court.install("gen-test", sandbox="off")
    done = court.call("general", "check", "gen-test")
    assert done.returncode == 1
    assert "required" in done.stdout + done.stderr


def use_engines(court: Court, mode: str, **programs: str) -> None:
    """Have a general for each engine, whose program is given."""
    for name in programs:
        court.install(f"gen-{name}", engine={"name": name}, profile="read")
    system = {"engines": {name: {"path": path} for name, path in programs.items()}, "sandbox": mode}
    (court.root / "config" / "system.yaml").write_text(json.dumps(system))


def found_by_doctor(court: Court, engine: str) -> list[tuple[str, str]]:
    done = court.run("doctor", "--json")
    return [
        (check["level"], check["message"])
        for check in json.loads(done.stdout)["checks"]
        if check["name"] == f"engine {engine}" and "sandbox" in check["message"]
    ]


def test_the_doctor_runs_each_engine_s_program_in_the_sandbox(court: Court) -> None:
    programs = installed()
    use_engines(court, "required", claude=programs.claude, codex=programs.codex)
    for engine in ("claude", "codex"):
        assert found_by_doctor(court, engine) == [("ok", "ran a command in the court's sandbox")]


def test_the_doctor_says_that_every_command_fails_in_the_sandbox_of_codex(court: Court, tmp_path: Path) -> None:
    program = tmp_path / "codex"
    script = '#!/bin/sh\n[ "$1" = --version ] && echo codex 9.9.9 && exit\n[ "$*" = \'sandbox -- true\' ] && {}\n'
    program.write_text(script.format("exit"))
    program.chmod(0o755)
    use_engines(court, "off", codex=str(program))
    assert found_by_doctor(court, "codex") == [("ok", "ran a command in its own sandbox")]
    program.write_text(script.format("echo 'bwrap: execvp codex-linux-sandbox: No such file' && exit 1"))
    why = "every command fails in its own sandbox: exit code 1: bwrap: execvp codex-linux-sandbox: No such file"
    assert found_by_doctor(court, "codex") == [("error", why)]
    assert court.run("doctor").returncode == 1
