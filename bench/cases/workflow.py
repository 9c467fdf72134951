"""The engine of workflows: what it costs from one query to the next, beside peers and a bare transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench import workflows
from bench.bare import steps as bare
from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Outcome, Table
from bench.peers import Peer, temporal
from bench.repositories import make_repository

TITLE = "workflows, from one query to the next"
_OURS = "kingdom"
_LONG = "kingdom, Works of 20 tasks"
_WORKS = "kingdom, from Work to Work as well"
_DBOS = "DBOS"
_FEW_TASKS, _MANY_TASKS = 5, 20
_FEW, _MANY = "3 Works", "60 Works"
_WITH_GIT = "with a checkpoint in git, beside the git calls"
_SMALL, _LARGE = "3 Works of 5 tasks", "200 tasks"


def sqlite(context: Context) -> list[Table]:
    """On SQLite, every step on disk before the next."""
    folder = context.directory("workflow")
    notes = (
        "UPDATE + INSERT, sqlite3, WAL, FULL",
        "WAL by hand, FULL; @DBOS.step",
        "AsyncSqliteSaver, sync; WAL, FULL",
    )
    return _steps(context, "SQLite", folder, bare.sqlite, "sqlite", notes, 1.0, ())


def postgres(context: Context) -> list[Table]:
    """On PostgreSQL, with ``synchronous_commit`` on."""
    notes = ("UPDATE + INSERT, asyncpg, prepared", "@DBOS.step", "AsyncPostgresSaver, sync")
    server, count = context.postgres, _count(context)
    more = (
        Contestant(
            "Temporal",
            partial(temporal.activities, server, count),
            "activities, eager, 10,000 polls/s allowed; Go, server and worker in one process, all cores",
        ),
        Contestant(
            "Temporal, local activities",
            partial(temporal.local_activities, server, count),
            "not durable before the next begins: recorded together, at the end of a task",
        ),
    )
    return _steps(context, "PostgreSQL", server, bare.postgres, "postgres", notes, 0.5, more)


def _count(context: Context) -> int:
    """How many steps are measured."""
    return context.pick(100, 400)


def _steps(
    context: Context,
    name: str,
    place: Path | str,
    least: Callable[..., Any],
    peer: str,
    notes: tuple[str, str, str],
    bar: float,
    more: Sequence[Contestant],
) -> list[Table]:
    count = _count(context)
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
        *more,
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


def tasks_sqlite(context: Context) -> list[Table]:
    """A task of a small plan and of a long Work, on SQLite."""
    return _tasks(context, "SQLite", context.directory("workflow-tasks"))


def tasks_postgres(context: Context) -> list[Table]:
    """A task of a small plan and of a long Work, on PostgreSQL."""
    return _tasks(context, "PostgreSQL", context.postgres)


def _tasks(context: Context, name: str, place: Path | str) -> list[Table]:
    small = context.pick(4, 13)
    outcomes = context.race(
        Contestant(
            _SMALL, partial(workflows.steps, place, 3, _FEW_TASKS, runs=small), f"{small} such plans, one by one"
        ),
        Contestant(_LARGE, partial(workflows.steps, place, 1, 200), "one Work"),
    )
    return [
        Table(
            f"From one query to the next within a Work, {name}",
            "ms",
            outcomes,
            metric="within",
            bars={_LARGE: [Bar("<=", 1.1, of=_SMALL)]},
            higher_is_better=False,
        )
    ]


def works_sqlite(context: Context) -> list[Table]:
    """From Work to Work, in a short plan and in a long one, on SQLite."""
    return _works(context, "SQLite", context.directory("workflow-works"), 6.0)


def works_postgres(context: Context) -> list[Table]:
    """From Work to Work, in a short plan and in a long one, on PostgreSQL."""
    return _works(context, "PostgreSQL", context.postgres, 10.0)


def _works(context: Context, name: str, place: Path | str, bar: float) -> list[Table]:
    source, small = context.directory("workflow-source") / uuid4().hex, context.pick(5, 30)
    make_repository(source, 100)
    outcomes = context.race(
        Contestant(_FEW, partial(workflows.steps, place, 3, 1, runs=small), f"{small} such plans, one by one"),
        Contestant(_MANY, partial(workflows.steps, place, 60, 1), "of one task each"),
        Contestant(
            _WITH_GIT,
            partial(workflows.steps, place, context.pick(10, 30), 1, repository=source),
            "each Work adds a file to a repository of 100",
        ),
    )
    *plain, with_git = outcomes
    beside = replace(with_git, reps=[_beside(figures) for figures in with_git.reps])
    return [
        Table(
            f"From the last query of a Work to the first of the next, {name}",
            "ms",
            [*plain, beside],
            metric="between",
            bars={_MANY: [Bar("<=", 1.1, of=_FEW)], _WITH_GIT: [Bar("<=", bar)]},
            higher_is_better=False,
            remarks=(
                "Start of the agent, answer, end of the agent, checkpoint, workspace, new agent, query",
                f"{_WITH_GIT}: git's own time, from the start of its processes to their end, is taken off: "
                + ", ".join(f"{figures['git']:.1f} ms" for figures in with_git.reps if figures is not None),
            ),
        )
    ]


def _beside(figures: Figures | None) -> Figures | None:
    return None if figures is None else {"between": figures["beside"]}


PARTS = (sqlite, postgres, tasks_sqlite, tasks_postgres, works_sqlite, works_postgres)
