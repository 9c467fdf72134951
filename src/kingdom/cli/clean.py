"""``kingdom clean``: remove what is past its time, or show what would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Yes
from kingdom.cli.court.session import in_court
from kingdom.cli.home import HomeOption

if TYPE_CHECKING:
    from kingdom.court.chamberlain.cleaning import Cleaning
    from kingdom.court.chamberlain.config import RetentionSection
    from kingdom.court.chamberlain.retention import Expired
    from kingdom.court.loop import Services


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go, and why.")] = False,
    home: HomeOption = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove what is older than config/chamberlain.yaml says it is kept. What is in somebody's hands stays."""
    if dry_run:
        items = in_court(home, _plan)
        if json:
            output.emit({"files": [_document(item) for item in items], "bytes": sum(item.size for item in items)})
        elif items:
            rows = [(item.path, f"{item.size:,}", item.why) for item in items]
            output.print_table(("file", "bytes", "why"), rows, ("bytes",))
            output.say(f"{len(items)} would go, {sum(item.size for item in items):,} bytes")
        else:
            output.say("nothing is past its time")
        return
    output.confirm("Remove everything that is past its time (kingdom clean --dry-run shows it)?", yes=yes)
    removed = in_court(home, _clean)
    if json:
        output.emit({"removed": removed})
    else:
        output.say(f"{removed} removed")


def _document(item: Expired) -> dict[str, object]:
    return {"path": item.path, "bytes": item.size, "age_days": round(item.age / 86400, 2), "why": item.why}


async def _plan(services: Services) -> list[Expired]:
    cleaning, _ = _cleaning(services)
    return [item async for item in cleaning.plan()]


async def _clean(services: Services) -> int:
    import asyncio

    from kingdom.court.chamberlain.cleaning import journal_was_read

    cleaning, section = _cleaning(services)
    was_read = await asyncio.to_thread(journal_was_read, services.home, section, services.clock())
    if not was_read:
        output.say("closed files of the journal stay: the chamberlain has not read them yet")
    return sum([removed async for removed in cleaning.run(with_journal=was_read)])


def _cleaning(services: Services) -> tuple[Cleaning, RetentionSection]:
    from kingdom.court.chamberlain.cleaning import Cleaning
    from kingdom.court.chamberlain.config import ConfigFile
    from kingdom.court.chamberlain.soldiers import HomeBarracks
    from kingdom.court.chamberlain.speech import Warnings

    loaded = ConfigFile(services.home).load()
    if loaded.problem is not None:
        raise output.Failure("INVALID_CONFIG", f"{loaded.problem}; nothing is removed by it")
    section = loaded.config.retention
    barracks = HomeBarracks(services.home)
    return Cleaning(services.home, services.bus, barracks, section, services.clock(), Warnings()), section
