"""Many workflows at once, against one at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import workflows
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Table

TITLE = "many workflows at once"
_ALONE, _TOGETHER = "one at a time", "50 at a time"
_TASKS = 5
_AT_ONCE = 50


def sqlite(context: Context) -> list[Table]:
    """On SQLite."""
    return _many(context, "SQLite", context.directory("workflow-many"))


def postgres(context: Context) -> list[Table]:
    """On PostgreSQL."""
    return _many(context, "PostgreSQL", context.postgres)


def _many(context: Context, name: str, place: Path | str) -> list[Table]:
    few, all_of_them = context.pick((30, 100), (200, 1_000))
    outcomes = context.race(
        Contestant(_ALONE, partial(workflows.many, place, few, _TASKS, at_once=1), f"{few} workflows"),
        Contestant(
            _TOGETHER,
            partial(workflows.many, place, all_of_them, _TASKS, at_once=_AT_ONCE),
            f"{all_of_them:,} workflows",
        ),
    )
    return [
        Table(
            f"A task, in workflows of one Work with {_TASKS} tasks, {name}",
            "ms",
            outcomes,
            metric="step",
            bars={_TOGETHER: [Bar("<=", 1.1, of=_ALONE)]},
            higher_is_better=False,
            remarks=(
                "From the first start to the last end, by the number of tasks: start, checkpoint and end included",
            ),
        )
    ]


PARTS = (sqlite, postgres)
