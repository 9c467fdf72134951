"""Which errors a command shows in one line, and how long it waits for a database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kingdom.bus import NotSetUp
from kingdom.bus.transport import CONNECT_SECONDS, INTERACTIVE_CONNECT_SECONDS
from kingdom.cli.output import CommandError
from kingdom.cli.session import errors_reported, find_home, with_court
from kingdom.court import bootstrap
from kingdom.court.home import MARKER
from kingdom.gitops import GitError
from kingdom.journal import JournalError
from kingdom.workflow.errors import WorkflowError


def test_outside_of_a_home_one_line_says_so_where_only_the_bus_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kingdom.base.yamlfile", None)  # as without PyYAML and pydantic
    monkeypatch.delenv("KINGDOM_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match="is not in the home of a court"):
        find_home(None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotSetUp("no tables"), "NOT_SET_UP"),
        (GitError("no such branch"), "GIT"),
        (JournalError("no such line"), "JOURNAL"),
        (WorkflowError("no such workflow"), WorkflowError.code),
    ],
)
def test_an_error_of_a_layer_has_its_code(error: Exception, code: str) -> None:
    with pytest.raises(CommandError, match=r"^no ") as shown, errors_reported():
        raise error
    assert shown.value.code == code


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), errors_reported():
        raise ZeroDivisionError


@pytest.mark.parametrize(("lasting", "seconds"), [(False, INTERACTIVE_CONNECT_SECONDS), (True, CONNECT_SECONDS)])
def test_a_command_gives_up_early_on_a_database_unless_it_is_to_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool, seconds: float
) -> None:
    asked: list[float] = []

    def open_queues(url: str, connect_timeout: float) -> NoReturn:
        asked.append(connect_timeout)
        raise NotSetUp(url)

    async def action(services: Any) -> None:
        raise AssertionError("it is not open")

    (tmp_path / "config").mkdir()
    (tmp_path / MARKER).write_text("{}\n")
    monkeypatch.setattr(bootstrap, "open_queues", open_queues)
    with pytest.raises(CommandError):
        with_court(tmp_path, action, lasting=lasting)
    assert asked == [seconds]
