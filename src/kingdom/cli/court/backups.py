"""``kingdom backup`` and ``kingdom restore``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from kingdom.court.database_backup import DatabaseScope


@command()
@argument("file", type=Path, help="The file to write, such as court.tar.gz; it must not exist.")
@home_option
@json_option
def backup(file: Path, home: Path | None, json: bool) -> None:
    """Store a whole court in one file, also while it runs.

    The file contains queues, state, memory, configuration, logs, workflows, clones and worktrees, and the tokens that
    the home has: keep it as safe as the home. The court pauses for a moment.
    """
    from dataclasses import asdict

    from kingdom.court.backup import make_backup
    from kingdom.court.machines.capacity import require_lead

    court = find_home(home)
    with errors_reported():
        require_lead(court)  # a copy of its files is behind the database
        made = make_backup(court, file, _workflow_rows())
    if json:
        output.print_json(asdict(made))
        return
    size = file.stat().st_size
    rows = f", {made.info.rows:,} rows of its database" if made.info.rows else ""
    output.say(f"{made.path}: {made.info.files:,} files{rows} and the repositories of {court.root}, {size:,} bytes")
    output.say(f"sha256 {made.sha256}")
    output.say(f"kingdom restore {made.path} {court.root} brings it back; what happens from now on is not in it")


@command()
@argument("file", type=Path, help="A file that kingdom backup made.")
@argument("dir", type=Path, help="The home, at the path it was made of; it must be empty or missing.")
@click.option("--database", metavar="URL", help="Another PostgreSQL for the queues, if they were in one.")
@click.option("--database-env", metavar="NAME", help="The environment variable with its URL, if it has a password.")
@json_option
def restore(
    file: Path,
    dir: Path,  # noqa: A002 - the name in the usage line
    database: str | None,
    database_env: str | None,
    json: bool,
) -> None:
    """Restore a court from a backup.

    Queues that were in a database need an empty one: the one that the configuration names, or another, which it names
    then. A password comes from the variable of --database-env, from PGPASSWORD or from ~/.pgpass. Workflows that were
    in a database are restored to the one that KINGDOM_WORKFLOW_STORE names.
    Nothing is left behind if it fails. Start the court with kingdom up: it goes on as after a power cut.
    """
    from dataclasses import asdict

    from kingdom.court.init_home import DatabaseName
    from kingdom.court.restore import restore_backup

    if database is not None and database_env is not None:
        raise output.usage_error("give --database or --database-env, not both")
    named = None if database is None and database_env is None else DatabaseName(database, database_env)
    with errors_reported():
        info = restore_backup(file, dir, named, _workflow_rows())
    if json:
        output.print_json(asdict(info))
        return
    output.say(f"{dir} is the court as it was at {info.made_at}, with {info.files:,} files: kingdom up starts it")


def _workflow_rows() -> DatabaseScope | None:
    """Return what a workflow store in PostgreSQL has; None if workflows are in the home.

    Engines, their leases and what they hold are left out: they belong to the machines of that moment.
    """
    if not os.environ.get("KINGDOM_WORKFLOW_STORE", "").startswith(("postgresql:", "postgres:")):
        return None
    from kingdom.court.database_backup import DatabaseScope
    from kingdom.workflow.commands import COMMAND_STREAM
    from kingdom.workflow.context import system_clock
    from kingdom.workflow.store import open_store
    from kingdom.workflow.store.repositories import TABLES
    from kingdom.workflow.store.transactions import STREAM

    async def prepare(url: str, _: frozenset[str]) -> None:
        async with open_store(url, system_clock) as store:
            await store.setup()

    tables = {table.name: "id" for table in TABLES}
    tables |= {"wf_task": "work_id, id", "wf_event": "position", "wf_counter": "name"}
    version = "SELECT last FROM wf_counter WHERE name = 'schema'"
    streams = (STREAM, COMMAND_STREAM)
    return DatabaseScope("workflows", streams, tables, prepare, clear="DELETE FROM wf_counter", same=version)
