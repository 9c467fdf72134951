"""Commands while the database of the court does not answer: a person learns what is waited for, and what to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.court.home import MARKER, Home
from tests.support.command import kingdom, kingdom_tty

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port on which connections open, and nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield listener.getsockname()[1]


@pytest.fixture
def home(tmp_path: Path, silent: int) -> Home:
    """A home whose queues are in a database at that port."""
    (tmp_path / "config").mkdir()
    (tmp_path / MARKER).write_text(f"queue: {{transport: 'postgresql://127.0.0.1:{silent}/court'}}\n")
    (tmp_path / "config/machine.yaml").write_text(
        f"{{name: seat, database: 'postgresql://127.0.0.1:{silent}/court'}}\n"
    )
    return Home(tmp_path)


@pytest.mark.parametrize("command", [["task", "ls"], ["emit", "x.y"], ["doctor"], ["machines"]])
def test_a_person_sees_which_database_is_waited_for_and_how_to_look_at_it(
    home: Home, silent: int, command: list[str]
) -> None:
    code, screen = kingdom_tty(*command, KINGDOM_HOME=str(home.root))
    seen = " ".join(screen.split())
    assert code == 1
    assert f"waiting for the database at 127.0.0.1:{silent} …" in seen
    assert "no answer" in seen
    assert f"pg_isready -h 127.0.0.1 -p {silent} asks it" in seen


def test_the_state_of_the_court_is_shown_without_its_queues(home: Home, silent: int) -> None:
    code, screen = kingdom_tty("status", KINGDOM_HOME=str(home.root))
    seen = " ".join(screen.split())
    assert code == 0
    assert f"waiting for the database at 127.0.0.1:{silent} …" in seen
    assert "not up (kingdom up starts it)" in seen
    assert "no answer. Is it up" in seen


def test_nothing_but_the_error_is_printed_where_nobody_looks(home: Home) -> None:
    done = kingdom("task", "ls", KINGDOM_HOME=str(home.root))
    assert done.stderr.startswith("error: postgresql://127.0.0.1:")
