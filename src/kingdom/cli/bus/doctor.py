"""``kingdom bus doctor``: what is wrong, or about to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Url
from kingdom.cli.bus.session import on_bus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.bus import Check

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(url: Url, json: Json = False) -> None:
    """Check what tends to go wrong with this store; exits 1 when something is wrong now."""
    from kingdom.bus.looking import check_document

    checks = on_bus(url, lambda bus: bus.doctor())
    healthy = all(check.level != "error" for check in checks)
    if json:
        output.emit({"ok": healthy, "checks": [check_document(check) for check in checks]})
    else:
        print_checks(checks)
    if not healthy:
        raise typer.Exit(output.FAILED)


def print_checks(checks: Sequence[Check]) -> None:
    """Print findings for people: a table, and below it what to do about those that are not well."""
    rows = [(output.styled(check.level, _STYLES[check.level]), check.name, check.message) for check in checks]
    output.print_table(("", "check", "finding"), rows)
    for check in checks:
        if check.hint and check.level != "ok":
            output.say(f"{check.name}: {check.hint}")
