"""Stores of workflows as former versions left them."""

from __future__ import annotations

import json
from pathlib import Path

from kingdom.workflow.store.database import DatabaseStore

_VERSION_7 = Path(__file__).parent / "workflow_store_7.json"
WORKFLOW_OF_VERSION_7 = "wf-000002"


async def go_back_to_version(store: DatabaseStore, version: int) -> None:
    """Remove what migrations after ``version`` added. A store with works cannot go back to before version 8."""
    async with store.session() as session:
        if version < 8:
            await session.fetch("DROP TABLE wf_task")
            for column in ("name", "waits", "checkpoint"):
                await session.fetch(f"ALTER TABLE wf_work DROP COLUMN {column}")
        for number, table, column in (
            (4, "wf_git", "name"), (4, "wf_mcp_server", "name"), (3, "wf_workflow", "label"),
        ):  # fmt: skip
            if number > version:
                await session.fetch(f"DROP INDEX {table}_by_{column}")
                await session.fetch(f"ALTER TABLE {table} DROP COLUMN {column}")
        if version < 6:
            await session.fetch("ALTER TABLE wf_event DROP COLUMN attempt")
        await session.fetch("UPDATE wf_counter SET last = ? WHERE name = 'schema'", version)


async def fill_as_version_7(store: DatabaseStore) -> None:
    """Make an empty store one that version 7 wrote: a workflow that was reset once and is paused in its last Work."""
    await go_back_to_version(store, 7)
    async with store.session() as session:
        for table, rows in json.loads(_VERSION_7.read_text()).items():
            for row in rows:
                marks = ", ".join("?" * len(row))
                await session.fetch(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())
