"""The lead of a court: a fenced lease, the files that follow it, and what a former holder can still do: nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from kingdom.bus import Envelope
from kingdom.bus.errors import TransportUnavailable
from kingdom.court.acknowledgements import Acknowledgements
from kingdom.court.config import MachineSection
from kingdom.court.errors import JoinedMachine, NotLeading
from kingdom.court.home import MARKER, Home
from kingdom.court.machines import leading, own_lead
from kingdom.court.machines.capacity import require_lead
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.guard import LeadGuard
from kingdom.court.machines.lead import LeadTable, hold
from kingdom.court.machines.leading import LeadKeeper
from kingdom.court.machines.own_lead import (
    OwnLead,
    forget_lead,
    holder_id,
    lease_end,
    read_lead,
    uptime,
    write_lead,
)
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.replica import Replica, is_shared, shared_files
from kingdom.court.machines.role_reports import keep_role_reports
from kingdom.court.overview import read_overview_without_queues
from kingdom.court.queues import MESSAGES, IdSequences, declare_queues, open_queues
from kingdom.web.security.tokens import TokenStore
from tests.support.courts import PATIENCE
from tests.support.machines import eventually, install
from tests.support.web_court import web_court

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


class _Machine:
    """A home that may lead, without its roles."""

    def __init__(self, root: Path, url: str) -> None:
        self.home = Home(root)
        (root / "config").mkdir(parents=True)
        self.name = root.name
        self.database = CourtDatabase(url, keep=True)
        self.holder = holder_id(self.home, self.name)
        self.table = LeadTable(self.database, self.name, self.holder)
        self.replica = Replica(self.home, self.database, self.holder)
        self.guard = LeadGuard(self.home, url, self.name)

    def write(self, path: str, content: bytes | str) -> None:
        target = self.home.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(".tmp-test")
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.rename(target)

    def files(self) -> dict[str, bytes]:
        return {path: (self.home.root / path).read_bytes() for path, _ in shared_files(self.home)}

    async def lead(self) -> int:
        """Take the lead, and let the roles of this home know."""
        asked = uptime()
        _, now = await self.table.take()
        assert now.holder == self.holder
        write_lead(self.home, OwnLead(True, self.name, now.term, now.standby, lease_end(asked)))
        return now.term


@pytest.fixture
async def pair(tmp_path: Path, postgres_url: str) -> AsyncIterator[tuple[_Machine, _Machine]]:
    """Two machines that may lead."""
    registry = Registry(postgres_url)
    await registry.setup()
    made = _Machine(tmp_path / "one", postgres_url), _Machine(tmp_path / "two", postgres_url)
    for machine in made:
        await registry.register(machine.name, joined=False)
    yield made
    for machine in made:
        await machine.database.close()
        await machine.guard.close()


async def _expire(machine: _Machine) -> None:
    async with machine.database.connection() as connection:
        await connection.execute("UPDATE court_lead SET until = clock_timestamp() - interval '1 second'")


# ── the lease ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_machine_leads_until_its_lease_ends_and_each_new_holder_has_a_higher_term(
    pair: tuple[_Machine, _Machine],
) -> None:
    one, two = pair
    assert await one.lead() == 1
    assert await one.lead() == 1  # renewed
    _, seen = await two.table.take()
    assert (seen.holder, seen.term) == (one.holder, 1)
    await one.replica.push_all(1)
    await one.replica.mark_complete(1)
    await _expire(one)
    assert await two.lead() == 2
    _, seen = await one.table.take()
    assert (seen.machine, seen.term) == ("two", 2)


async def test_a_role_claims_under_the_term_of_its_own_machine_only(pair: tuple[_Machine, _Machine]) -> None:
    one, two = pair
    term = await one.lead()
    assert one.guard.workers("king") == ["king.1", "king"]
    await one.replica.mark_complete(term)
    await one.table.release(term)
    await two.lead()
    write_lead(one.home, OwnLead(False, "two", 2, True, uptime()))  # what it learns when it is connected again
    with pytest.raises(NotLeading, match="two leads the court"):
        one.guard.workers("king")
    assert two.guard.workers("king") == ["king.2", "king.1", "king"]


async def test_nobody_takes_over_while_the_files_are_not_in_the_database(pair: tuple[_Machine, _Machine]) -> None:
    one, two = pair
    await one.lead()
    await _expire(one)
    _, seen = await two.table.take()
    assert seen.holder == one.holder


async def test_a_lease_that_is_given_back_is_taken_over_at_once(pair: tuple[_Machine, _Machine]) -> None:
    one, two = pair
    term = await one.lead()
    await one.replica.mark_complete(term)
    await one.table.release(term)
    assert await two.lead() == term + 1


async def test_a_machine_that_is_removed_loses_the_lead_and_gets_it_no_more(
    pair: tuple[_Machine, _Machine], postgres_url: str
) -> None:
    one, two = pair
    await one.replica.mark_complete(await one.lead())
    await Registry(postgres_url).set_state("one", "removed")
    _, now = await one.table.take()
    assert now.holder != one.holder
    assert await two.lead() == 2
    await _expire(two)
    _, now = await one.table.take()
    assert now.holder == two.holder


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), asyncpg.AdminShutdownError("terminating connection")]
)
async def test_a_machine_that_could_not_renew_its_lead_does_so_when_it_can_again(
    pair: tuple[_Machine, _Machine], postgres_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    one, _ = pair
    refused: set[asyncio.Event] = set()

    def write(home: Home, lead: OwnLead) -> None:
        for event in refused:
            event.set()
            raise error
        write_lead(home, lead)

    monkeypatch.setattr(leading, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(leading, "write_lead", write)
    keeper = LeadKeeper(one.home, postgres_url, MachineSection(name="one"), lambda: None)
    await keeper.start()
    try:
        refused.add(event := asyncio.Event())
        async with asyncio.timeout(PATIENCE):
            await event.wait()
            refused.clear()
            known = read_lead(one.home)
            assert known is not None
            while (renewed := read_lead(one.home)) is None or renewed.until <= known.until:
                await asyncio.sleep(0.01)
        assert (renewed.sure, renewed.term) == (True, known.term)
    finally:
        await keeper.stop()


async def test_a_machine_whose_files_change_as_it_stops_stops(
    pair: tuple[_Machine, _Machine], postgres_url: str
) -> None:
    keeper = LeadKeeper(pair[0].home, postgres_url, MachineSection(name="one"), lambda: None)
    await keeper.start()
    await asyncio.sleep(0)  # the loops wait
    keeper._wake.set()
    async with asyncio.timeout(PATIENCE):
        await keeper.stop()


async def test_a_machine_that_stands_by_shows_what_the_roles_of_the_other_report(
    pair: tuple[_Machine, _Machine], postgres_url: str
) -> None:
    one, two = pair
    for machine in pair:
        machine.write(MARKER, "{}")
    asking = {"asking": ["task-20260207-001"], "deadlines": {"task-20260207-001": "2026-02-08T00:00:00Z"}}
    held = {"health is red": {"count": 2, "events": ["evt-a", "evt-b"]}}
    one.write("state/king/heartbeat", json.dumps({**asking, "holds": held}))
    one.write("state/chamberlain/heartbeat", json.dumps({"alert_texts": {"config": "it cannot be read"}}))
    one.write("state/results/task-20260207-001.json", json.dumps({"question": {"text": "Which?"}}))
    two.write("state/king/heartbeat", json.dumps({"asking": ["task-20260101-001"], "holds": {"long ago": 1}}))
    keepers = [LeadKeeper(each.home, postgres_url, MachineSection(name=each.name), lambda: None) for each in pair]
    await keepers[0].start()
    await eventually(lambda: (lead := read_lead(one.home)) and lead.leading)
    await keepers[1].start()
    try:
        view = await eventually(lambda: (found := read_overview_without_queues(two.home, 0.0)).questions and found)
        assert [(ask.task_id, ask.question, ask.deadline) for ask in view.questions] == [
            ("task-20260207-001", "Which?", "2026-02-08T00:00:00Z")
        ]
        assert view.holds == held
        assert [(alert.name, alert.text) for alert in view.alerts] == [("config", "it cannot be read")]
        kept = (one.home.root / "state/role-reports.json").stat()
        one.write("state/king/heartbeat", json.dumps({"ts": "later", **asking, "holds": held}))
        keep_role_reports(one.home)
        assert (one.home.root / "state/role-reports.json").stat() == kept  # a heartbeat alone copies nothing
        one.write("state/king/heartbeat", json.dumps({"asking": [], "holds": {}}))
        await eventually(lambda: not read_overview_without_queues(two.home, 0.0).questions)
    finally:
        for keeper in reversed(keepers):
            await keeper.stop()


async def test_twenty_homes_that_ask_at_once_get_one_holder(tmp_path: Path, postgres_url: str) -> None:
    registry = Registry(postgres_url)
    await registry.setup()
    machines = [_Machine(tmp_path / f"m{number}", postgres_url) for number in range(20)]
    for machine in machines:
        await registry.register(machine.name, joined=False)
    taken = await asyncio.gather(*(machine.table.take() for machine in machines))
    holders = {now.holder for _, now in taken}
    assert len(holders) == 1
    assert sum(now.holder == machine.holder for machine, (_, now) in zip(machines, taken, strict=True)) == 1
    for machine in machines:
        await machine.database.close()
        await machine.guard.close()


# ── a former holder ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_former_holder_can_write_no_file(pair: tuple[_Machine, _Machine]) -> None:
    one, two = pair
    term = await one.lead()
    one.write("state/king/.book", "first")
    await one.replica.push_all(term)
    await one.replica.mark_complete(term)
    await _expire(one)
    await two.lead()
    one.write("state/king/.book", "late")
    with pytest.raises(NotLeading):
        await one.replica.push(term, ["state/king/.book"])
    with pytest.raises(NotLeading):
        await one.guard.save(one.home.root / "state/king/.book")  # its own clock does not say it yet: the database does
    await two.replica.pull_all(keep=False)
    assert two.files()["state/king/.book"] == b"first"


async def test_roles_do_nothing_when_their_machine_was_frozen_for_longer_than_its_lease(
    pair: tuple[_Machine, _Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    await one.lead()
    one.guard.check()
    real = uptime
    monkeypatch.setattr(own_lead, "uptime", lambda: real() + own_lead.LEASE_SECONDS)
    with pytest.raises(NotLeading, match="could not be renewed in time"):
        one.guard.check()


async def test_a_court_without_another_machine_that_may_lead_needs_no_lease(tmp_path: Path, postgres_url: str) -> None:
    registry = Registry(postgres_url)
    await registry.setup()
    alone = _Machine(tmp_path / "alone", postgres_url)
    await registry.register("alone", joined=False)
    await registry.register("builder", joined=True)
    await alone.lead()
    write_lead(alone.home, OwnLead(True, "alone", 1, shared=False, until=0.0))
    alone.guard.check()
    alone.write("state/king/.book", "x")
    await alone.guard.save(alone.home.root / "state/king/.book")
    async with alone.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM court_file") == 0
    await alone.database.close()
    await alone.guard.close()


def test_what_is_in_files_of_the_court_is_changed_where_it_leads(tmp_path: Path) -> None:
    home, tokens, seen = Home(tmp_path), TokenStore(tmp_path), Acknowledgements(tmp_path)
    home.config.mkdir()
    tokens.add("ann", "look")
    write_lead(home, OwnLead(False, "seat", 3))
    changes: list[Callable[[], object]] = [
        lambda: tokens.remove("ann"),
        lambda: tokens.add("bob", "own"),
        lambda: seen.add({"alert:x": "text"}, "ann", 1000.0),
        lambda: require_lead(home),
    ]
    for change in changes:
        with pytest.raises(NotLeading, match="seat leads the court, and this machine has a copy of its files"):
            change()
    assert [one.name for one in tokens.list()] == ["ann"]
    forget_lead(home)  # down: the machine that led last may change them
    home.role("link").joinpath("replica.json").write_text("{}")
    with pytest.raises(NotLeading, match="another machine leads"):
        tokens.remove("ann")
    home.role("link").joinpath("led.json").write_text("{}")
    tokens.remove("ann")
    write_lead(home, OwnLead(True, "seat", 3))
    seen.add({"alert:x": "text"}, "ann", 1000.0)
    (home.config / "system.yaml").write_text("queue: {transport: 'postgresql://db/court'}\n")
    (home.config / "machine.yaml").write_text("{name: builder, joined: true}\n")
    with pytest.raises(JoinedMachine, match="builder runs generals only: run this on the machine that leads"):
        tokens.add("bob", "look")


async def test_a_general_is_switched_where_the_court_leads(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court:
        install(court.context.court.home, "gen-quick")
        write_lead(court.context.court.home, OwnLead(False, "seat", 3))
        answer = await court.client.post("/api/generals/gen-quick/disable")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "SYS_NOT_LEADING")
        write_lead(court.context.court.home, OwnLead(True, "seat", 3))
        assert (await court.client.post("/api/generals/gen-quick/disable")).status_code == 200


def test_what_a_machine_knew_before_a_reboot_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    write_lead(home, OwnLead(True, "one", 3, shared=True, until=uptime() + 60))
    assert read_lead(home) == OwnLead(True, "one", 3, True, pytest.approx(uptime() + 60, abs=PATIENCE))
    monkeypatch.setattr(own_lead, "boot_id", lambda: "another boot")
    assert read_lead(home) is None


# ── the files ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("state/king/.book", True),
        ("state/results/task-20261117-001.json", True),
        ("logs/events.log", True),
        ("logs/sessions/x.json", True),
        ("config/system.yaml", True),
        ("memory/generals/gen-pr/notes.md", True),
        ("config/machine.yaml", False),
        ("config/generals/gen-pr/manifest.yaml", False),
        ("state/link/lead.json", False),
        ("state/king/heartbeat", False),
        ("state/king/.lock", False),
        ("state/king/.tmp-1-x", False),
        ("state/chamberlain/rollups.db", False),
        ("state/web/token", False),
        ("queue/events/pending/x.json", False),
        ("workspace/gen-pr/x", False),
        ("config/../../etc/passwd", False),
        ("/etc/passwd", False),
        ("state//x", False),
        ("state", False),
    ],
)
def test_files_of_the_court_are_shared_and_those_of_the_machine_are_not(path: str, shared: bool) -> None:
    assert is_shared(path) is shared


async def test_the_files_of_one_machine_become_those_of_the_other_whatever_happens_to_them(
    pair: tuple[_Machine, _Machine],
) -> None:
    one, two = pair
    chance = random.Random(7)
    term = await one.lead()
    paths = [f"state/king/{number}.json" for number in range(6)] + ["logs/events.log", "state/ledger/2026-11.jsonl"]
    pulled_all = False
    for step in range(60):
        for path in chance.sample(paths, 3):
            target = one.home.root / path
            what = chance.random()
            if what < 0.15 and target.exists():
                target.unlink()
            elif what < 0.6 or not target.exists():
                one.write(path, chance.randbytes(chance.choice((0, 5, 64 * 1024, 70_000, 200_000))))
            else:
                with target.open("ab") as file:
                    file.write(chance.randbytes(chance.choice((1, 1000, 64 * 1024, 150_000))))
        await one.replica.push_all(term)
        if not pulled_all or chance.random() < 0.1:
            await two.replica.pull_all(keep=False)
            pulled_all = True
        while await two.replica.pull():
            pass
        assert two.files() == one.files(), f"step {step}"
    async with one.database.connection() as connection:
        assert (
            await connection.fetchval(
                "SELECT count(*) FROM court_file_block b WHERE NOT EXISTS "
                "(SELECT FROM court_file f WHERE f.path = b.path AND NOT f.deleted)"
            )
            == 0
        )  # nothing is left of files that are gone


async def test_a_large_file_is_sent_in_parts_and_only_what_is_new_is_sent_again(
    pair: tuple[_Machine, _Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    term = await one.lead()
    monkeypatch.setattr("kingdom.court.machines.replica._BATCH_BYTES", 300_000)
    one.write("logs/events.log", os.urandom(1_000_000))
    one.write("state/king/.book", "small")
    assert await one.replica.push_all(term) >= 5  # four parts, and the small one
    with (one.home.root / "logs/events.log").open("ab") as file:
        file.write(b"one more line\n")
    async with one.database.connection() as connection:
        before = await connection.fetchval("SELECT max(xmin::text::bigint) FROM court_file_block")
    assert await one.replica.push_all(term) == 1
    async with one.database.connection() as connection:
        changed = await connection.fetchval(
            "SELECT count(*) FROM court_file_block WHERE xmin::text::bigint > $1", before
        )
    assert changed == 1  # the last block
    await two.replica.pull_all(keep=False)
    assert two.files() == one.files()


async def test_what_a_former_leader_wrote_and_could_not_send_is_set_aside(pair: tuple[_Machine, _Machine]) -> None:
    one, two = pair
    term = await one.lead()
    one.write("state/king/.book", "sent")
    await one.replica.push_all(term)
    await one.replica.mark_complete(term)
    await _expire(one)
    new_term = await two.lead()
    await two.replica.pull_all(keep=False)
    one.write("state/king/.book", "not sent")
    one.write("state/results/task-1.json", "not sent either")
    two.write("state/king/.book", "of the new leader")
    await two.replica.push_all(new_term)
    assert await one.replica.pull_all(keep=True) == ["state/results/task-1.json"]
    assert one.files() == two.files()
    assert (one.home.root / "state/link/set-aside/state/results/task-1.json").read_text() == "not sent either"


async def test_what_was_changed_in_place_reaches_the_other_after_the_copy_was_discarded(
    pair: tuple[_Machine, _Machine],
) -> None:
    one, two = pair
    term = await one.lead()
    one.write("logs/events.log", b"x" * 300_000)
    one.write("state/results/task-1.json", "about a person")
    await one.replica.push_all(term)
    await one.replica.mark_complete(term)
    await two.replica.pull_all(keep=False)
    await one.guard.discard_copy()
    async with one.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM court_file_block") == 0
    _, lead = await two.table.take()
    assert not lead.complete
    with (one.home.root / "logs/events.log").open("r+b") as file:
        file.seek(100_000)
        file.write(b"-" * 1000)  # as a removal does: neither its size nor its ends change
    (one.home.root / "state/results/task-1.json").unlink()
    await Replica(one.home, one.database, one.holder).push_all(term)
    assert await two.replica.pull_all(keep=False) == ["state/results/task-1.json"]
    assert two.files() == one.files()
    assert not (two.home.root / "state/link/set-aside").exists()
    await one.replica.mark_complete(term)
    await _expire(one)
    await two.lead()
    with pytest.raises(NotLeading, match="two led the court last: do it there"):
        await one.guard.discard_copy()


async def test_a_path_in_the_database_cannot_lead_out_of_the_home(pair: tuple[_Machine, _Machine]) -> None:
    one, two = pair
    await one.lead()
    async with one.database.connection() as connection:
        for number, path in enumerate(("../escaped", "config/generals/gen-x/manifest.yaml", "/tmp/escaped")):
            await connection.execute(
                "INSERT INTO court_file (path, epoch, size, digest, mode, version) VALUES ($1, 1, 1, '', 420, $2)",
                path,
                1_000_000 + number,
            )
            await connection.execute("INSERT INTO court_file_block VALUES ($1, 0, 'x')", path)
    await two.replica.pull_all(keep=False)
    while await two.replica.pull():
        pass
    assert two.files() == {}
    assert not (two.home.root.parent / "escaped").exists()
    assert not (two.home.root / "config/generals").exists()


async def test_a_link_is_neither_sent_nor_followed(pair: tuple[_Machine, _Machine], tmp_path: Path) -> None:
    one, two = pair
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (one.home.root / "memory").mkdir()
    (one.home.root / "memory/link").symlink_to(secret)
    term = await one.lead()
    await one.replica.push_all(term)
    await one.replica.push(term, ["memory/link"])
    (two.home.root / "state/x").symlink_to(secret)
    one.write("state/x", "of one")
    await one.replica.push_all(term)
    await two.replica.pull_all(keep=False)
    assert two.files() == {"state/x": b"of one"}
    assert secret.read_text() == "secret"


# ── ids ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_machine_that_takes_over_repeats_no_id_although_the_last_number_came_late(
    tmp_path: Path, postgres_url: str
) -> None:
    home = Home(tmp_path)
    sequences = IdSequences(home, lambda: 1_763_340_000.0)  # 2025-11-17
    async with open_queues(postgres_url) as bus:
        await declare_queues(bus)
        for number in (1, 2, 3):
            await bus.publish(MESSAGES, Envelope("notification", {}, event_id=f"msg-20251117-00{number}"))
        assert sequences.messages(1) == ["msg-20251117-001"]  # as a copy that lacks the last two would
        await sequences.recover(bus)
    assert sequences.messages(1) == ["msg-20251117-004"]


async def test_a_holder_that_is_frozen_while_it_writes_does_not_stop_the_takeover(
    pair: tuple[_Machine, _Machine], postgres_url: str
) -> None:
    one, two = pair
    term = await one.lead()
    await one.replica.mark_complete(term)

    async def write_slowly() -> None:
        async with CourtDatabase(postgres_url).transaction() as connection:
            await hold(connection, one.holder, term)  # and nothing more is heard of it
            await _expire(one)
            async with asyncio.timeout(PATIENCE):
                while (await two.table.take())[1].holder != two.holder:
                    pass
            await connection.execute("UPDATE court_lead SET complete = false")

    with pytest.raises(TransportUnavailable):
        await write_slowly()
    _, now = await two.table.take()
    assert (now.holder, now.complete) == (two.holder, True)
