"""Structured logs: every line about an event names the event.

The bus logs through the standard library under ``kingdom.*`` and attaches the fields of the event as extras. A
handler's own lines carry them too: the formatters here take them from the delivery being handled. ::

    from kingdom.bus import logs

    logs.configure()             # JSON lines, or readable ones on a terminal

    @worker.on("OrderAccepted")
    async def push(event):
        logging.getLogger("shop").info("pushed")    # … "traceId", "eventId", "stream", "eventType", … are in the line
"""

from __future__ import annotations

import json as jsonlib
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus.envelope import format_time
from kingdom.bus.errors import InvalidOption
from kingdom.bus.handlers import current_delivery_var

if TYPE_CHECKING:
    from typing import TextIO

EVENT_FIELDS: Final = ("traceId", "eventId", "stream", "eventType", "aggregateType", "aggregateId")

_CORE: Final = ("ts", "level", "logger", "message")
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", *_CORE}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extras of a record, after the fields of the event being handled, if there is one."""
    extras = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
    delivery = current_delivery_var.get() if "eventId" not in extras else None
    return extras if delivery is None else {**delivery.log_fields(), **extras}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``ts``, ``level``, ``logger``, ``message``, the event's fields, other extras."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON; other values are written as text."""
        line: dict[str, Any] = {
            "ts": format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:  # a queue handler has formatted it already
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return jsonlib.dumps(line, ensure_ascii=False, default=str)
        except (TypeError, ValueError):  # keys that are not text, or a circular structure
            core = {key: line[key] for key in _CORE}
            return jsonlib.dumps({**core, **{key: str(value) for key, value in line.items() if key not in core}})


class TextFormatter(logging.Formatter):
    """Readable lines: time, level, logger and message, then the event's fields as ``key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the standard library
        """Append the fields to the line itself: a traceback follows below it."""
        pairs = " ".join(f"{key}={value}" for key, value in fields_of(record).items() if value is not None)
        line = super().formatMessage(record)
        return f"{line}  {pairs}" if pairs else line


class _Handler(logging.StreamHandler["TextIO"]):
    """Marks the handler of :func:`configure`, which replaces it when called again and keeps all others."""


def configure(*, json: bool | None = None, level: int | str = "INFO", stream: TextIO | None = None) -> None:
    """Send the log of this application to ``stream`` (default: standard error).

    ``json``: one JSON object per line, or readable text; by default text on a terminal and JSON elsewhere. May be
    called again; handlers that were installed otherwise stay.
    """
    target = sys.stderr if stream is None else stream
    root = logging.getLogger()
    try:
        root.setLevel(level.upper() if isinstance(level, str) else level)
    except (TypeError, ValueError):
        raise InvalidOption(f"logs.configure(level={level!r}): use DEBUG, INFO, WARNING, ERROR or CRITICAL") from None
    handler = _Handler(target)
    handler.setFormatter(JsonFormatter() if json or (json is None and not target.isatty()) else TextFormatter())
    for old in [item for item in root.handlers if isinstance(item, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
