"""What an event costs PostgreSQL: statements and bytes of WAL. Counts, not times, so that they hold on any machine.

How the WAL budgets were set: this test's own figures, measured on PostgreSQL 18.4 with its defaults (full_page_writes
and checksums on, straight after a checkpoint, autovacuum off for the table so that its own WAL does not count), plus
a quarter. A change that goes over one writes more for each event than it used to: find out why before raising it.
"""

from __future__ import annotations

import pytest

from bench import ours, pg
from bench.harness import Figures
from bench.payload import payloads
from kingdom.bus import connect

EVENTS = 2_000
WAL_PER_PUBLISHED = 1_400  # bytes; measured 1,112
WAL_PER_DRAINED = 900  # bytes; measured 720


@pytest.fixture
async def costs(postgres_server: str) -> dict[str, Figures]:
    """Statements and WAL for each event, for publishing in batches of 1,000 and for draining with a Worker."""
    database = await pg.create_database(postgres_server, log_statements=True)
    server = pg.in_database(postgres_server, database)
    publishing, draining = pg.ServerCounts(postgres_server), pg.ServerCounts(postgres_server)
    try:
        async with connect(server) as bus:
            await bus.setup()
            await pg.execute(server, "ALTER TABLE outbox_event SET (autovacuum_enabled = off)", "CHECKPOINT")
            async with publishing:
                await ours.fill(bus, payloads(EVENTS))
            drained = await ours.work_off(bus, EVENTS, watch=draining)
    finally:
        await pg.execute(postgres_server, f"DROP DATABASE {database}")
    return {"publish": publishing.figures(EVENTS), "drain": drained}


async def test_an_event_costs_no_more_than_a_tenth_of_a_statement(costs: dict[str, Figures]):
    # The lower limits watch the counting itself: 2,000 events cannot be drained in fewer than 20 claims of 100.
    assert 0.01 <= costs["drain"]["statements"] <= 0.1
    assert 0.001 <= costs["publish"]["statements"] <= 0.02


async def test_an_event_stays_within_its_budget_of_wal(costs: dict[str, Figures]):
    assert 300 <= costs["publish"]["wal"] <= WAL_PER_PUBLISHED  # it holds a payload of 300 bytes at least
    assert 0 < costs["drain"]["wal"] <= WAL_PER_DRAINED
