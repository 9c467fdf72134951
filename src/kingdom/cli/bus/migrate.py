"""``kingdom bus migrate``: make or update what the bus is stored in."""

from __future__ import annotations

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Url
from kingdom.cli.bus.session import on_bus


def migrate(url: Url, json: Json = False) -> None:
    """Make the tables or directories of the bus, or bring old ones up to date. Safe to repeat."""
    applied = on_bus(url, lambda bus: bus.setup())
    if json:
        output.emit({"applied": applied})
    elif applied:
        for name in applied:
            output.say(f"applied {name}")
    else:
        output.say("up to date: nothing to apply")
