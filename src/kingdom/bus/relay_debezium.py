"""The records that Debezium's outbox event router would make of the rows of an outbox.

Configured with the same properties, so that a relay can take the place of a connector, and consumers notice nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kingdom.bus.errors import InvalidEnvelope, InvalidOption
from kingdom.bus.relay_port import OutboxRow, RelayRecord

_ROUTER: Final = "io.debezium.transforms.outbox.EventRouter"
_COLUMNS: Final = (
    "id", "stream", "event_id", "event_type", "aggregate_type", "aggregate_id", "payload_json", "priority",
    "created_at",
)  # fmt: skip
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
# Properties that change nothing here: there are only inserts, and columns are known.
_WITHOUT_EFFECT: Final = ("table.op.invalid.behavior", "table.fields.additional.error.on.missing", "type", "predicate")
_PLACEMENTS: Final = ("header", "envelope", "partition")


class AdditionalColumn(NamedTuple):
    """A column that is sent beside the payload."""

    column: str
    placement: str
    alias: str


class EventRouter:
    """Turns rows into records as ``io.debezium.transforms.outbox.EventRouter`` does.

    ``properties``: those of the transformation, by their names in Debezium without ``transforms.<name>.``, and
    ``key.converter`` and ``value.converter``. Defaults are Debezium's, but for the names of the columns, which are
    those of ``outbox_event``, and for the converters: JSON without schemas.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        given = dict(properties or {})

        def column(name: str, default: str) -> str:
            found = given.pop(name, default)
            if found not in _COLUMNS:
                raise InvalidOption(f"{name}={found}: outbox_event has the columns {', '.join(_COLUMNS)}")
            return found

        self._id = column("table.field.event.id", "event_id")
        self._key = column("table.field.event.key", "aggregate_id")
        self._payload = column("table.field.event.payload", "payload_json")
        column("table.field.event.type", "event_type")
        self._route_by = column("route.by.field", "aggregate_type")
        self._regex = _java_regex(given.pop("route.topic.regex", "(?<routedByValue>.*)"))
        self._topic = re.sub(
            r"\$\{(\w+)\}", r"\\g<\1>", given.pop("route.topic.replacement", "outbox.event.${routedByValue}")
        )
        self._topic = re.sub(r"\$(\d+)", r"\\g<\1>", self._topic)
        self._tombstones = _flag(given, "route.tombstone.on.empty.payload")
        self._expand = _flag(given, "table.expand.json.payload")
        self._keep_nulls = given.pop("table.json.payload.null.behavior", "ignore") == "optional_bytes"
        self._additional = [
            _additional(text) for text in given.pop("table.fields.additional.placement", "").split(",") if text
        ]
        self._in_envelope = [item for item in self._additional if item.placement == "envelope"]
        self._key_is_json = _is_json(given, "key.converter")
        self._value_is_json = _is_json(given, "value.converter")
        for name in _WITHOUT_EFFECT:
            given.pop(name, None)
        if given:
            raise InvalidOption(
                f"the event router does not know {', '.join(sorted(given))}: the relay has no way to do the same"
            )

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read the properties file of a connector, or one with the properties of the transformation alone."""
        try:
            lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(f"the properties file {path} cannot be read: {error}") from None
        found: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if line and line[0] not in "#!":
                name, equals, value = line.partition("=")
                if not equals:
                    raise InvalidOption(f"{path}, line {number}: expected name=value")
                found[name.strip()] = value.strip()
        return cls(_of_router(found))

    def record(self, row: OutboxRow) -> RelayRecord:
        """Return the record of a row, or raise :class:`InvalidEnvelope`."""
        routed_by = getattr(row, self._route_by)
        if routed_by is None:
            raise InvalidEnvelope(
                f"event {row.event_id} has no {self._route_by}, which names its topic (route.by.field)"
            )
        matched = self._regex.fullmatch(str(routed_by))
        topic = str(routed_by) if matched is None else matched.expand(self._topic)
        key = _plain(getattr(row, self._key))
        headers: list[tuple[str, bytes | None]] = [("id", _bytes(_plain(getattr(row, self._id))))]
        partition = None
        for column, placement, alias in self._additional:
            value = _plain(getattr(row, column))
            if placement == "header":
                headers.append((alias, _bytes(value)))
            elif placement == "partition":
                if not isinstance(value, int):
                    raise InvalidEnvelope(f"event {row.event_id}: {column} is no number of a partition")
                partition = value
        return RelayRecord(topic, self._encoded(key, self._key_is_json), self._value(row), headers, partition)

    def _value(self, row: OutboxRow) -> bytes | None:
        payload: Any = _plain(getattr(row, self._payload))
        if self._tombstones and (payload is None or not str(payload).strip()):
            return None
        if self._expand and isinstance(payload, str) and payload[:1] in ("{", "["):
            payload = json.loads(payload)
            if not self._keep_nulls:
                payload = _without_nulls(payload)
        if self._in_envelope:
            payload = {
                "payload": payload,
                **{item.alias: _plain(getattr(row, item.column)) for item in self._in_envelope},
            }
        return self._encoded(payload, self._value_is_json)

    @staticmethod
    def _encoded(value: Any, as_json: bool) -> bytes | None:
        if value is None:
            return None
        if as_json or isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return str(value).encode()


def _of_router(found: dict[str, str]) -> dict[str, str]:
    """Return the properties of the router among those of a connector."""
    names = [
        name.removeprefix("transforms.").removesuffix(".type")
        for name, value in found.items()
        if value == _ROUTER and name.startswith("transforms.")
    ]
    if not names:
        return found
    start = f"transforms.{names[0]}."
    chosen = {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}
    chosen |= {name: value for name, value in found.items() if name.startswith(("key.converter", "value.converter"))}
    return chosen


def _java_regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", text))
    except re.error as error:
        raise InvalidOption(f"route.topic.regex={text}: {error}") from None


def _flag(given: dict[str, str], name: str) -> bool:
    text = given.pop(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{name}={text}: write true or false")
    return text == "true"


def _additional(text: str) -> AdditionalColumn:
    column, _, rest = text.strip().partition(":")
    placement, _, alias = rest.partition(":")
    if column not in _COLUMNS or placement.lower() not in _PLACEMENTS:
        raise InvalidOption(
            f"table.fields.additional.placement={text}: write column:placement[:alias], with one of the columns "
            f"{', '.join(_COLUMNS)} and header, envelope or partition"
        )
    return AdditionalColumn(column, placement.lower(), alias or column)


def _is_json(given: dict[str, str], name: str) -> bool:
    converter = given.pop(name, _JSON)
    schemas = given.pop(f"{name}.schemas.enable", "false" if converter == _JSON else "")
    if converter not in (_JSON, _STRING) or schemas.lower() == "true":
        raise InvalidOption(f"{name}={converter}: the relay has {_STRING}, and {_JSON} with schemas.enable=false")
    return converter == _JSON


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def _bytes(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
