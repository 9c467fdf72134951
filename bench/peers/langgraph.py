"""LangGraph: a chain of nodes that do nothing, each written down before the next begins (``durability="sync"``)."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any, TypedDict
from uuid import uuid4

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from bench import pg
from bench.harness import Figures

_WARMING = 20


class _State(TypedDict):
    answer: str


async def sqlite(folder: Path, count: int) -> Figures:
    """Its checkpointer for SQLite, which uses WAL."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / f"langgraph-{uuid4().hex}.db")) as saver:
        return await _steps(saver, count)


async def postgres(server: str, count: int) -> Figures:
    """Its checkpointer for PostgreSQL, on a connection as its own constructor makes it."""
    async with pg.fresh_schema(server) as schema:
        connection = await AsyncConnection.connect(
            server, autocommit=True, prepare_threshold=0, row_factory=dict_row, options=f"-csearch_path={schema}"
        )
        async with connection:
            saver = AsyncPostgresSaver(conn=connection)
            await saver.setup()
            return await _steps(saver, count)


async def _steps(saver: Any, count: int) -> Figures:
    began: list[float] = []
    await _run(saver, _WARMING, began)
    began.clear()
    await _run(saver, count, began)
    assert len(began) == count
    return {"step": 1e3 * (began[-1] - began[0]) / (count - 1)}


async def _run(saver: Any, count: int, began: list[float]) -> None:
    async def step(_: _State) -> _State:
        began.append(perf_counter())
        return {"answer": "It is done."}

    graph: Any = StateGraph(_State)
    names = [f"step {number}" for number in range(count)]
    for name in names:
        graph.add_node(name, step)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    compiled = graph.compile(checkpointer=saver)
    settings = {"configurable": {"thread_id": uuid4().hex}, "recursion_limit": count + 10}
    await compiled.ainvoke({"answer": ""}, settings, durability="sync")
