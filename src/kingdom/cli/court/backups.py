"""``kingdom backup`` and ``kingdom restore``."""

from __future__ import annotations

from pathlib import Path

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import errors_reported, find_home


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

    court = find_home(home)
    with errors_reported():
        made = make_backup(court, file)
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
@json_option
def restore(file: Path, dir: Path, database: str | None, json: bool) -> None:  # noqa: A002 - the name in the usage line
    """Restore a court from a backup.

    Queues that were in a database need an empty one: the one that the configuration names, or --database.
    Nothing is left behind if it fails. Start the court with kingdom up: it goes on as after a power cut.
    """
    from dataclasses import asdict

    from kingdom.court.backup import restore_backup

    with errors_reported():
        info = restore_backup(file, dir, database)
    if json:
        output.print_json(asdict(info))
        return
    output.say(f"{dir} is the court as it was at {info.made_at}, with {info.files:,} files: kingdom up starts it")
