"""logs/system.log: what every role logs, a line for each thing."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.court.home import Home
from kingdom.court.loop import current_role
from kingdom.court.supervisor.logs import ConsoleWriter, configure_logging, with_system_log
from kingdom.journal import rotate_to_old

log = logging.getLogger("kingdom.court")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.logs.mkdir()
    return home


@pytest.fixture
def screen(home: Home) -> Iterator[io.StringIO]:
    """What is said, while everything that is logged is also written down."""
    root, ours = logging.getLogger(), logging.getLogger("kingdom")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    stream = io.StringIO()
    configure_logging("king", ConsoleWriter(stream), home)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(home: Home) -> list[str]:
    """The lines without their times, which are checked."""
    found = (home.logs / "system.log").read_text().splitlines()
    stamped = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (.*)")
    return [match[1] if (match := stamped.fullmatch(line)) else line for line in found]


@pytest.mark.usefixtures("screen")
def test_time_role_level_and_text(home: Home) -> None:
    log.info("a %s begins", "day")
    log.warning("it rains")
    logging.getLogger("somebody.else").info("not ours to tell")
    assert lines(home) == ["king INFO a day begins", "king WARNING it rains"]


@pytest.mark.usefixtures("screen")
def test_an_error_is_told_with_where_it_came_from(home: Home) -> None:
    log.error("it failed", exc_info=ValueError("two\nlines, \x1b[31mred"))
    head, *rest = lines(home)
    assert head == "king ERROR it failed"
    assert rest == ["    ValueError: two", "    lines, [31mred"]
    try:
        int("x")
    except ValueError:
        log.exception("again")
    assert "    Traceback (most recent call last):" in lines(home)


@pytest.mark.usefixtures("screen")
def test_text_of_others_stays_on_its_line(home: Home) -> None:
    log.warning("%s", "broken\n2026-01-01T00:00:00.000Z king INFO all is well\x1b[2J\u202e" + "x" * 10_000)
    (line,) = lines(home)
    assert line.startswith("king WARNING broken 2026-01-01")
    assert line.isprintable()
    assert len(line) < 5000


async def test_roles_that_share_a_process_are_told_apart(home: Home, screen: io.StringIO) -> None:
    async def role(name: str) -> None:
        current_role.set(name)
        await asyncio.sleep(0)
        log.warning("here is %s", name)

    await asyncio.gather(role("envoy"), role("gen-pr"))
    log.warning("and all of them")
    assert lines(home) == [
        "envoy WARNING here is envoy",
        "gen-pr WARNING here is gen-pr",
        "king WARNING and all of them",
    ]
    assert [line.split()[1] for line in screen.getvalue().splitlines()] == ["envoy", "gen-pr", "king"]


@pytest.mark.usefixtures("screen")
def test_after_a_rotation_it_goes_on_in_a_new_file(home: Home) -> None:
    log.warning("before")
    rotate_to_old(home.logs / "system.log", max_bytes=1)
    log.warning("after")
    assert lines(home) == ["king WARNING after"]
    assert (home.logs / "system.log.old").read_text().endswith("king WARNING before\n")


def test_where_nothing_can_be_written_it_is_still_said(home: Home, screen: io.StringIO) -> None:
    (home.logs / "system.log").mkdir()
    log.warning("listen")
    assert "warning: listen" in screen.getvalue()


def test_what_is_said_of_roles_is_written_down_too(home: Home) -> None:
    said: list[tuple[str, str]] = []
    say = with_system_log(home, lambda role, text: said.append((role, text)))
    say("gen-pr", "started (pid 7)")
    say("supervisor", "warning: the disk is full")
    assert said == [("gen-pr", "started (pid 7)"), ("supervisor", "warning: the disk is full")]
    assert lines(home) == ["gen-pr INFO started (pid 7)", "supervisor WARNING the disk is full"]
