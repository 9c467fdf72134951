"""``kingdom stats``: how much was done, by day, by hour and by general."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from collections.abc import Sequence

_BARS: Final = "▁▂▃▄▅▆▇█"
_HOURS: Final = 24


def stats(
    days: Annotated[int, typer.Option("--days", min=1, max=31, metavar="N", help="How many days to show.")] = 7,
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Show how many tasks there were, how they ended and how long they took."""
    import time

    from kingdom.court.figures import current_stats

    found = find_home(home)
    with told():
        document = current_stats(found, time.time())
    if json:
        output.emit(document)
        return
    shown = dict(list(document["days"].items())[-days:])
    if not shown:
        output.say("nothing has happened yet: the journal is empty")
        return
    columns = ("day", "events", "created", "completed", "failed", "asked", "timed out")
    keys = ("events", "created", "completed", "failed", "needs_human", "timeout")
    output.print_table(columns, [(day, *(counts[key] for key in keys)) for day, counts in shown.items()], columns[1:])
    output.say()
    rows = _generals(shown)
    if rows:
        columns = ("general", "created", "completed", "failed", "asked", "timed out", "average")
        output.print_table(columns, rows, columns[1:])
        output.say()
    for name, key in (("completed", "completed"), ("failed", "failed")):
        chart, total = _chart(document, key)
        output.say(f"{name:<10} {chart}  {total} in the last {_HOURS} hours")


def _generals(days: dict[str, Any]) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    names = sorted({name for counts in days.values() for name in counts["generals"]})
    for name in names:
        parts = [counts["generals"][name] for counts in days.values() if name in counts["generals"]]
        sums = [
            sum(part[key] for part in parts) for key in ("created", "completed", "failed", "needs_human", "timeout")
        ]
        weighed = sum((part["avg_duration_seconds"] or 0) * part["completed"] for part in parts)
        rows.append((name, *sums, f"{weighed / sums[1]:.0f} s" if sums[1] else "–"))
    return rows


def _chart(document: dict[str, Any], key: str) -> tuple[str, int]:
    """One bar for each of the last hours."""
    from datetime import datetime, timedelta

    last = datetime.fromisoformat(document["generated_at"])
    names = [(last - timedelta(hours=back)).strftime("%Y-%m-%dT%H") for back in reversed(range(_HOURS))]
    values = [document["hours"].get(name, {}).get(key, 0) for name in names]
    highest = max(values) or 1
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // highest)] for value in values), sum(values)
