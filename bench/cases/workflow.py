"""The engine of workflows: what it costs from one query to the next, beside DBOS, LangGraph and a bare transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import workflows
from bench.bare import steps as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Outcome, Table
from bench.peers import Peer

TITLE = "workflows, from one query to the next"
_OURS = "kingdom"
_LONG = "kingdom, Works of 20 tasks"
_WORKS = "kingdom, from Work to Work as well"
_DBOS = "DBOS"
_FEW_TASKS, _MANY_TASKS = 5, 20
_FEW, _MANY = "3 Works", "60 Works"


def sqlite(context: Context) -> list[Table]:
    """On SQLite, every step on disk before the next."""
    folder = context.directory("workflow")
    notes = (
        "UPDATE + INSERT, sqlite3, WAL, FULL",
        "WAL by hand, FULL; @DBOS.step",
        "AsyncSqliteSaver, sync; WAL, FULL",
    )
    return _steps(context, "SQLite", folder, bare.sqlite, "sqlite", notes, 1.0)


def postgres(context: Context) -> list[Table]:
    """On PostgreSQL, with ``synchronous_commit`` on."""
    notes = ("UPDATE + INSERT, asyncpg, prepared", "@DBOS.step", "AsyncPostgresSaver, sync")
    return _steps(context, "PostgreSQL", context.postgres, bare.postgres, "postgres", notes, 0.5)


def _steps(
    context: Context,
    name: str,
    place: Path | str,
    least: Callable[..., Any],
    peer: str,
    notes: tuple[str, str, str],
    bar: float,
) -> list[Table]:
    count = context.pick(100, 400)
    outcomes = context.race(
        Contestant("bare transaction", partial(least, place, count), notes[0]),
        Contestant(
            _WORKS,
            partial(workflows.steps, place, count // _FEW_TASKS, _FEW_TASKS),
            "every fifth step with a checkpoint and a new agent",
        ),
        Contestant(
            _LONG, partial(workflows.steps, place, count // _MANY_TASKS, _MANY_TASKS), "query to query within a Work"
        ),
        Contestant(_DBOS, partial(Peer("dbos", peer), place, count), notes[1]),
        Contestant("LangGraph", partial(Peer("langgraph", peer), place, count), notes[2]),
    )
    bare_one, works, long, *peers = outcomes
    within = Outcome(_OURS, f"query to query within a Work of {_FEW_TASKS} tasks", _within(works), works.failure)
    outcomes = [bare_one, within, replace(long, reps=_within(long)), works, *peers]
    return [
        Table(
            f"One step of a workflow on {name}, agents and steps that answer at once",
            "ms",
            outcomes,
            metric="step",
            bars={_OURS: [Bar("<=", bar, of=_DBOS)], _WORKS: [Bar("<=", 1.0, of=_DBOS)]},
            higher_is_better=False,
            remarks=(
                f"{count} steps, one after the other, each durable before the next begins",
                "A step of ours records five events for the interface",
            ),
        )
    ]


def _within(outcome: Outcome) -> list[Figures | None]:
    """The figures of an outcome, without the steps from Work to Work."""
    return [None if figures is None else {"step": figures["within"]} for figures in outcome.reps]


def works(context: Context) -> list[Table]:
    """From Work to Work, in a short plan and in a long one."""
    folder = context.directory("workflow-works")
    outcomes = context.race(
        Contestant(_FEW, partial(workflows.steps, folder, 3, 1), "as most plans are"),
        Contestant(_MANY, partial(workflows.steps, folder, 60, 1), "of one task each"),
    )
    return [
        Table(
            "From the last query of a Work to the first of the next, SQLite",
            "ms",
            outcomes,
            metric="between",
            higher_is_better=False,
            remarks=("Answer, end of the agent, checkpoint (without repositories), workspace, new agent, query",),
        )
    ]


PARTS = (sqlite, postgres, works)
