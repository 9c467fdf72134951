"""``kingdom web``, and the web as a part of ``kingdom up``: real processes, real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kingdom.court.home import Home
from kingdom.court.supervisor.record import running_supervisor
from kingdom.web.record import record_path, running_server
from kingdom.web.security import read_token
from tests.support.command import COMMAND, Background, environment, kingdom
from tests.support.courts import PATIENCE, Court, until
from tests.support.repositories import Remote

TEMPLATE = """
name: small
description: One work.
engine: {name: scripted, options: {script: {build/write: [{result: {summary: written}}]}}}
works: [{name: build, tasks: [{name: write, query: Write it}]}]
"""


@contextlib.contextmanager
def web(root: Path, *options: str, terminal: int | None = None) -> Iterator[tuple[Background, str]]:
    """``kingdom web`` in the background, and its address; afterwards it is asked to stop, and must."""
    with Background(terminal, "web", "--home", str(root), "--port", "0", *options) as process:
        try:
            yield process, until(lambda: process.poll() or running_server(root), "a server").url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE)


def token_of(root: Path) -> str:
    token = read_token(root)
    assert token is not None
    return token


def ask(root: Path, path: str) -> httpx.Response:
    running = running_server(root)
    assert running is not None
    headers = {"Authorization": f"Bearer {token_of(root)}"}
    return httpx.get(f"{running.url}{path}", headers=headers, trust_env=False, timeout=30)


def test_any_folder_is_served_and_the_token_is_shown_only_when_asked_for(tmp_path: Path) -> None:
    with web(tmp_path) as (process, url):
        assert ask(tmp_path, "/api/session").json()["data"]["court"] is False
        page = httpx.get(
            f"{url}/login", params={"token": token_of(tmp_path)}, follow_redirects=True, trust_env=False, timeout=30
        )
        assert page.status_code == 200
        assert page.headers["Content-Type"].startswith("text/html")
        assert "token" not in str(page.url)
        link = kingdom("web", "--home", str(tmp_path), "--link").stdout
        assert f"{url}/login?token={token_of(tmp_path)}" in link
        again = kingdom("web", "--home", str(tmp_path), "--port", url.rpartition(":")[2])
        assert again.returncode == 1
        assert f"is already running at {url}" in again.stderr
        assert len(again.stderr.splitlines()) == 1
        old = token_of(tmp_path)
        renewed = kingdom("web", "--home", str(tmp_path), "--new-token").stdout
        assert old != token_of(tmp_path)
        assert token_of(tmp_path) in renewed
        until(lambda: ask(tmp_path, "/api/session").status_code == 200, "the new token to count")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out
    assert f"the dashboard is at {url}" in out
    assert old not in out
    assert token_of(tmp_path) not in out
    assert not record_path(tmp_path).exists()
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "token"]
    assert not [path for path in written if token_of(tmp_path).encode() in path.read_bytes()]


def test_a_person_s_token_is_made_used_listed_and_revoked_by_the_command_line(tmp_path: Path) -> None:
    at = ("--home", str(tmp_path))
    with web(tmp_path) as (_, url):
        made = json.loads(kingdom("token", "add", "ann", "--role", "answer", *at, "--json").stdout)
        assert made["link"] == f"{url}/login?token={made['token']}"
        headers = {"Authorization": f"Bearer {made['token']}"}

        def session() -> httpx.Response:
            return httpx.get(f"{url}/api/session", headers=headers, trust_env=False, timeout=30)

        assert session().json()["data"]["name"] == "ann"
        again = kingdom("token", "add", "ann", *at)
        assert (again.returncode, again.stderr.count("\n")) == (1, 1)
        assert "kingdom token rm ann" in again.stderr
        (listed,) = json.loads(kingdom("token", "ls", *at, "--json").stdout)["tokens"]
        assert (listed["name"], listed["role"]) == ("ann", "answer")
        assert listed["last_used_at"] is not None
        assert "ann" in kingdom("token", "ls", *at).stdout
        assert kingdom("token", "role", "ann", "operate", *at).stdout == "ann has the role operate now\n"
        assert session().json()["data"]["role"] == "operate"
        assert kingdom("token", "role", "ann", "king", *at).returncode == 2
        assert kingdom("token", "role", "bob", "look", *at).stderr.startswith("error: there is no token of 'bob'")
        assert kingdom("token", "rm", "ann", *at).returncode == 0
        assert session().status_code == 401
        gone = kingdom("token", "rm", "ann", *at)
        assert (gone.returncode, gone.stderr) == (1, "error: there is no token of 'ann': kingdom token ls lists them\n")
    refused = kingdom("token", "add", "a b", *at)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = kingdom("web", "--home", str(tmp_path), "--port", str(port))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: port {port} is in use")
    assert len(refused.stderr.splitlines()) == 1


def test_to_be_open_to_the_network_takes_a_name(tmp_path: Path) -> None:
    refused = kingdom("web", "--home", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 1
    assert "--allow-host" in refused.stderr


@pytest.mark.walk
def test_on_a_terminal_the_link_is_shown_and_the_network_warned_of(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    options = ("--host", "0.0.0.0", "--allow-host", "kingdom.example.com", "--no-engine")
    with web(tmp_path, *options, terminal=terminal) as (process, url):
        os.close(terminal)
        called = {"Host": "kingdom.example.com", "Authorization": f"Bearer {token_of(tmp_path)}"}
        assert httpx.get(f"{url}/api/session", headers=called, trust_env=False, timeout=30).status_code == 200
        process.send_signal(signal.SIGTERM)
        screen = bytearray()
        with contextlib.suppress(OSError):  # how Linux says that the other end of a terminal is gone
            while chunk := os.read(master, 65536):
                screen += chunk
    os.close(master)
    assert f"{url}/login?token={token_of(tmp_path)}" in screen.decode()
    assert "warning: 0.0.0.0 is open to the network" in screen.decode()


def test_a_court_has_its_web_and_workflows_are_worked_on_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINGDOM_WEB", "on")
    court = Court(tmp_path / "court")
    court.make()
    with (court.root / "config" / "system.yaml").open("a") as file:
        file.write("\nweb:\n  port: 0\n")
    remote = Remote(tmp_path / "app")
    remote.commit({"README.md": "hello\n"})
    (tmp_path / "small.yaml").write_text(TEMPLATE)
    with court.up():
        found = until(lambda: running_server(court.root), "a web server")
        assert f"the dashboard is at {found.url}" in until(lambda: "dashboard" in court.said and court.said, "its word")
        assert found.url in court.call("status").stdout
        assert court.ask("status")["dashboard"] == found.url
        assert f"{found.url}/login?token=" in court.run("web", "--link").stdout
        until(lambda: ask(court.root, "/api/health").json()["data"]["workflowEngine"], "the engine")
        _only_the_web_has_web_frameworks(court.wait_for_roles("web", "king", "gen-test"), found.process.pid)
        assert court.call("git", "add", remote.url).returncode == 0
        made = court.ask("workflow", "create", str(tmp_path / "small.yaml"), "--repo", "app")
        started = court.call("workflow", "start", made["id"])  # hands it over, and looks on
        assert started.returncode == 0, started.stdout + started.stderr
        assert ask(court.root, f"/api/workflows/{made['id']}").json()["data"]["status"] == "COMPLETED"
        assert court.wait_completed(court.emit())
    assert not record_path(court.root).exists()
    assert token_of(court.root) not in court.said
    for log in (court.root / "logs").rglob("*.log"):
        assert token_of(court.root) not in log.read_text()
    assert not re.search(r"web .*(died|hangs|does not stop)", court.said), court.said


def test_a_court_in_a_terminal_prints_the_link_and_others_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINGDOM_WEB", "on")
    court = Court(tmp_path / "court")
    court.make()
    with (court.root / "config" / "system.yaml").open("a") as file:
        file.write("\nweb:\n  port: 0\n")
    master, terminal = pty.openpty()
    started = subprocess.Popen(
        [*COMMAND, "up", "--roles", "king,web"],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=environment(KINGDOM_HOME=str(court.root)),
        start_new_session=True,
    )
    os.close(terminal)
    try:
        until(lambda: running_supervisor(Home(court.root)), "a court")
        shown = court.run("web", "--link")  # before the server has started
        assert shown.returncode == 0, shown.stderr
        url = running_server(court.root).url  # type: ignore[union-attr]
        link = f"{url}/login?token={token_of(court.root)}"
        assert link in shown.stdout
        screen = ""
        while link not in screen:
            screen += os.read(master, 65536).decode()
    finally:
        started.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):  # how Linux says that the other end of a terminal is gone
            while os.read(master, 65536):
                pass
        started.wait(timeout=PATIENCE)
        os.close(master)


def _only_the_web_has_web_frameworks(pids: dict[str, int], web_pid: int) -> None:
    def loaded(pid: int) -> bool:
        return "httptools" in Path(f"/proc/{pid}/maps").read_text()

    if not Path("/proc/self/maps").exists():
        return
    assert loaded(web_pid)
    supervisor_and_roles = {name: pid for name, pid in pids.items() if name != "web"}
    assert not [name for name, pid in supervisor_and_roles.items() if loaded(pid)]
