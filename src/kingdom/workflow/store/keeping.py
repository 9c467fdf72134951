"""Numbering events, and keeping them for the interface."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from kingdom.workflow.ports import Told
    from kingdom.workflow.store.sessions import Session

_EVERYTHING: Final = ""  # the counter of positions; no aggregate has this id
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COUNT: Final = """
    INSERT INTO wf_counter (name, last) VALUES {counters}
    ON CONFLICT (name) DO UPDATE SET last = wf_counter.last + excluded.last RETURNING name, last
"""
_KEEP: Final = "INSERT INTO wf_event (position, sequence, aggregate_id, type, payload, occurred_at)"
_KEEP_ROWS: Final = f"{_KEEP} VALUES {{events}}"
# Both at once, where a database can: one way to the server and back less for each transaction.
_COUNT_AND_KEEP: Final = f"""
    WITH counted AS ({_COUNT}), kept AS (
        {_KEEP}
        SELECT everything.last - told.position, own.last - told.sequence, told.id, told.type, told.payload, told.at
        FROM (VALUES {{events}}) AS told (position, sequence, id, type, payload, at)
        JOIN counted AS own ON own.name = told.id
        JOIN counted AS everything ON everything.name = '{_EVERYTHING}'
    )
    SELECT name, last FROM counted
"""  # noqa: S608  made of constants
_PLAIN: Final = "(?, ?, ?, ?, ?, ?)"
_TYPED: Final = "(?::bigint, ?::bigint, ?::text, ?::text, ?::text, ?::text)"


class _Kept(NamedTuple):
    """An event, with how many of this transaction come behind it: of all, and of its aggregate."""

    position: int
    sequence: int
    aggregate_id: str
    type: str
    payload: str
    occurred_at: str


async def keep(session: Session, told: Sequence[Told], now: datetime) -> list[int]:
    """Number events and keep them; returns the number of each in its aggregate.

    Positions count over all, sequences per aggregate; neither has a gap.
    """
    counts = Counter(item.aggregate_id for item in told)
    # The counter of positions comes first: whoever has it commits before the next one counts, so that events are
    # seen in their order. It is the last lock that is taken: nobody who has it waits for another.
    counters = sorted({_EVERYTHING: len(told), **counts}.items())
    kept = _kept(told, counts, now)
    sizes = len(counters), len(kept)
    if session.nests_inserts:
        rows = await session.fetch(_sql(_COUNT_AND_KEEP, *sizes, _TYPED), *chain(*counters, *kept))
        last = {name: int(number) for name, number in rows}
    else:
        last = {
            name: int(number) for name, number in await session.fetch(_sql(_COUNT, *sizes, _PLAIN), *chain(*counters))
        }
        numbered = (
            (last[_EVERYTHING] - item.position, last[item.aggregate_id] - item.sequence, *item[2:]) for item in kept
        )
        await session.fetch(_sql(_KEEP_ROWS, *sizes, _PLAIN), *chain(*numbered))
    return [last[item.aggregate_id] - item.sequence for item in kept]


def _kept(told: Sequence[Told], counts: Counter[str], now: datetime) -> list[_Kept]:
    at, left, made = now.isoformat(), dict(counts), []
    for place, item in enumerate(told, 1):
        left[item.aggregate_id] -= 1
        event = item.event
        made.append(
            _Kept(
                len(told) - place,
                left[item.aggregate_id],
                item.aggregate_id,
                type(event).__name__,
                _encode(event.payload()),
                at,
            )
        )
    return made


@cache
def _sql(statement: str, counters: int, events: int, row: str) -> str:
    counted = ", ".join(["(?, ?)"] * counters)
    return statement.replace("{counters}", counted).replace("{events}", ", ".join([row] * events))
