"""What the SQL transports share: their statements as named files, and the insert that joins a caller's transaction."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.document_form import DocumentForm
from kingdom.bus.envelope import PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.bus.envelope import Envelope
    from kingdom.bus.tx import Dialect

PRIORITY: Final = PRIORITIES  # as stored, by their place: the smallest is claimed first
RANK: Final = {name: rank for rank, name in enumerate(PRIORITIES)}


@cache
def statement(dialect: Dialect, name: str) -> str:
    """The statement in ``transports/<dialect>/sql/<name>.sql``."""
    return (files("kingdom.bus.transports") / dialect / "sql" / f"{name}.sql").read_text("utf-8")


@cache
def migrations(dialect: Dialect) -> tuple[tuple[int, str, str], ...]:
    """The numbered migrations of a dialect as (number, name, SQL), in order; files are ``NNN_name.sql``."""
    folder = files("kingdom.bus.transports") / dialect / "migrations"
    found = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple((int(name[:3]), name.removesuffix(".sql"), (folder / name).read_text("utf-8")) for name in found)


def insert_statement(
    dialect: Dialect,
    stream: str,
    envelopes: Sequence[Envelope],
    max_bytes: int,
    schema: str | None = None,
    now: float | None = None,
) -> tuple[str, dict[str, Any]]:
    """The statement and parameters that publish into an open transaction, in one round trip on any driver.

    One event, the usual number, is a row of parameters. Several travel as one JSON parameter: it works alike on every
    driver, and on psycopg it is 2.5 times faster than arrays. ``now`` is for SQLite, which has no clock of its own.
    """
    params: dict[str, Any]
    if len(envelopes) == 1:
        name = "publish_tx_one"
        params = {"stream": stream, **_head(envelopes[0]), "payload_json": envelopes[0].to_json(max_bytes)}
    else:
        name = "publish_tx"
        rows = (
            f'{json.dumps(_head(envelope))[:-1]},"payload_json":{envelope.to_json(max_bytes)}}}'
            for envelope in envelopes
        )
        params = {"stream": stream, "rows": f"[{','.join(rows)}]"}
    if dialect == "sqlite":
        params["now"] = time.time() if now is None else now
    return qualified(statement(dialect, name), schema), params


def qualified(sql: str, schema: str | None) -> str:
    """Put the schema's name before our tables, for statements that run on somebody else's connection."""
    if schema is None:
        return sql
    prefix = '"' + schema.replace('"', '""') + '".'
    for table in ("outbox_event", "outbox_stream", "inbox_event"):
        sql = sql.replace(f" {table}", f" {prefix}{table}")
    return sql


def form_to_json(form: DocumentForm | None) -> str | None:
    """The form of a stream's documents, as it is stored with the stream."""
    return None if form is None else json.dumps(asdict(form))


def form_from_json(text: str | None) -> DocumentForm | None:
    """What :func:`form_to_json` wrote."""
    if text is None:
        return None
    fields = json.loads(text)
    return DocumentForm(**{**fields, "outcomes": tuple(fields["outcomes"])})


def _head(envelope: Envelope) -> dict[str, Any]:
    """The columns that are not the envelope itself."""
    return {
        "event_id": envelope.event_id,
        "event_type": envelope.type,
        "aggregate_type": envelope.aggregate_type,
        "aggregate_id": envelope.aggregate_id,
        "priority": RANK[envelope.priority],
        "not_before": None if envelope.not_before is None else envelope.not_before.timestamp(),
    }
