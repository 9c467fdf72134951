"""What changes files of the court is refused on machines that have a copy of them, or none: it would be lost there."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.court.bootstrap import open_services
from kingdom.court.home import Home
from kingdom.court.init_home import HomeChoices, SharedQueues
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.joining import create_first_machine, join_court
from kingdom.court.machines.lead import LeadTable
from kingdom.court.machines.own_lead import OwnLead, holder_id, write_lead
from kingdom.court.machines.replica import is_shared
from kingdom.court.models import Task
from kingdom.court.queues import TASKS, put_documents
from kingdom.web.security.sessions import SessionStore
from kingdom.web.security.tokens import TokenStore
from tests.support.chamberlains import here, here_json
from tests.support.command import kingdom

OLD = "state/prompts/task-20260101-001.md"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A machine of a court, with a file that is past its retention time."""
    home = Home(tmp_path / "spare")
    home.config.mkdir(parents=True)
    (home.config / "system.yaml").write_text("queue: {transport: 'postgresql://127.0.0.1:1/nowhere'}\n")
    (home.config / "machine.yaml").write_text("{name: spare}\n")
    _put_old_file(home)
    return home


def _put_old_file(home: Home) -> None:
    path = home.root / OLD
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (time.time() - 40 * 86400,) * 2)


NEW_GENERAL = ("general", "new", "gen-x", "--hears", "test.x")
CLEAN = ("clean", "--yes")


@pytest.mark.parametrize("command", [NEW_GENERAL, CLEAN])
@pytest.mark.parametrize(
    ("leader", "said"),
    [
        ("seat", "seat leads the court, and this machine has a copy of its files: do it there"),
        ("", "another machine leads the court, and this machine has a copy of its files: do it there"),
        ("spare", "spare gave the lead back when it was stopped, and another machine may have it: do it on the one"),
    ],
)
def test_files_that_follow_the_lead_are_not_changed_on_a_machine_that_stands_by(
    home: Home, command: tuple[str, ...], leader: str, said: str
) -> None:
    write_lead(home, OwnLead(False, leader, 3))
    done = here(*command, "--home", str(home.root))
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert not home.general("gen-x").exists()
    assert (home.root / OLD).exists()


def test_a_general_is_not_created_where_generals_come_from_the_database(home: Home) -> None:
    (home.config / "machine.yaml").write_text("{name: builder, joined: true}\n")
    done = here(*NEW_GENERAL, "--home", str(home.root))
    assert done.returncode == 1
    assert "builder runs generals only: run this on the machine that leads" in done.stderr
    assert not home.general("gen-x").exists()


def test_a_general_is_created_on_the_machine_that_leads(home: Home) -> None:
    write_lead(home, OwnLead(True, "spare", 3))
    assert here(*NEW_GENERAL, "--home", str(home.root)).returncode == 0
    assert home.general("gen-x").is_dir()


def test_browsers_are_logged_in_at_one_machine_and_stay_so_when_files_are_copied() -> None:
    assert not is_shared("state/web/sessions.json")
    assert not is_shared("state/web/sessions-seen.json")
    assert is_shared("state/web/tokens.json")


# ── with a database ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def seat(tmp_path: Path, postgres_url: str) -> AsyncIterator[Home]:
    """The first machine of a court. It led last, and is down."""
    made = await create_first_machine(
        tmp_path / "seat",
        shared := SharedQueues("seat", postgres_url),
        HomeChoices(shared=shared),
        (),
        force=False,
    )
    database = CourtDatabase(postgres_url, keep=True)
    _, lead = await LeadTable(database, "seat", holder_id(made.home, "seat")).take()
    assert lead.machine == "seat"
    write_lead(made.home, OwnLead(False, "seat"))  # as `link` does when it gives the lead back
    (made.home.role("link") / "led.json").write_text('{"term": 1}')
    yield made.home
    await database.close()


@pytest.mark.postgres
async def test_a_removal_that_is_refused_on_a_machine_that_stands_by_leaves_nothing_to_complete(
    seat: Home, tmp_path: Path, postgres_url: str
) -> None:
    spare, _ = await join_court(tmp_path / "spare", SharedQueues("spare", postgres_url, joined=False), force=False)
    done = kingdom("forget", "--person", "ann", "--yes", KINGDOM_HOME=str(spare.home.root))
    assert done.returncode == 1
    assert "seat led the court last: do it there" in done.stderr
    assert not (spare.home.state / "removal.json").exists()


@pytest.mark.postgres
async def test_a_person_with_a_token_is_removed_on_the_machine_that_led_last(seat: Home) -> None:
    write_lead(seat, OwnLead(True, "seat", 1))
    tokens = TokenStore(seat.root)
    tokens.add("ann", "look")
    SessionStore(seat.root, tokens).add(tokens.named("ann"), 3600)
    write_lead(seat, OwnLead(False, "seat"))
    done = kingdom("forget", "--person", "ann", "--yes", KINGDOM_HOME=str(seat.root))
    assert done.returncode == 0, done.stderr
    assert TokenStore(seat.root).list() == []
    assert not (seat.state / "removal.json").exists()


@pytest.mark.postgres
async def test_a_machine_that_runs_generals_cleans_its_own_files_and_no_queue(
    seat: Home, tmp_path: Path, postgres_url: str
) -> None:
    """It does not know which tasks of other machines wait for an answer."""
    builder, _ = await join_court(tmp_path / "builder", SharedQueues("builder", postgres_url, joined=True), force=False)
    _put_old_file(builder.home)
    task = {"id": "task-20260101-001", "event_id": "evt-test-1", "type": "t", "target_general": "gen-x"}
    async with open_services(seat) as services:
        await put_documents(services.bus, [Task(**task, created_at="2026-01-01T00:00:00Z")])
        await services.bus.settle(done=[(held, "needs_human") for held in await services.bus.claim(TASKS, worker="g")])
        database = CourtDatabase(postgres_url)
        async with database.connection() as connection:
            await connection.execute("UPDATE outbox_event SET processed_at = now() - interval '90 days'")
        at = ("--home", str(builder.home.root))
        planned = await asyncio.to_thread(here_json, "clean", "--dry-run", *at)
        assert [one["path"] for one in planned["files"]] == [OLD]
        assert await asyncio.to_thread(here_json, "clean", "--yes", *at) == {"removed": 1}
        assert await services.bus.find("task-20260101-001") is not None
    assert not (builder.home.root / OLD).exists()
