"""Records as Debezium's outbox event router documents them, for each of its properties."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import EventRouter, InvalidEnvelope, InvalidOption
from kingdom.bus.relay_port import OutboxRow

ROW = OutboxRow(
    id=7,
    stream="orders",
    event_id="4d47e190-0402-4048-bc2c-89dd54343cdc",
    event_type="OrderCreated",
    aggregate_type="order",
    aggregate_id="1",
    payload_json='{"id": 1, "orderDate": "2019-01-31T12:13:01", "note": null}',
    priority=1,
    not_before=None,
    created_at=datetime(2019, 5, 3, 14, 38, 14, tzinfo=UTC),
    held=False,
)
ID = ("id", b"4d47e190-0402-4048-bc2c-89dd54343cdc")


def test_the_defaults_are_those_of_the_documentation() -> None:
    record = EventRouter().record(ROW)
    assert record.topic == "outbox.event.order"
    assert record.key == b'"1"'
    assert record.headers == [ID]
    assert record.value == json.dumps(ROW.payload_json).encode()  # a string, escaped
    assert record.partition is None


def test_additional_columns_become_headers_or_parts_of_an_envelope() -> None:
    header = EventRouter({"table.fields.additional.placement": "event_type:header:type"}).record(ROW)
    assert header.headers == [ID, ("type", b"OrderCreated")]
    assert header.value == json.dumps(ROW.payload_json).encode()
    whole = EventRouter({"table.fields.additional.placement": "event_type:envelope:type,created_at:envelope"}).record(
        ROW
    )
    assert json.loads(whole.value or b"") == {
        "payload": ROW.payload_json,
        "type": "OrderCreated",
        "created_at": "2019-05-03T14:38:14Z",
    }
    assert EventRouter({"table.fields.additional.placement": "priority:partition"}).record(ROW).partition == 1


def test_escaped_json_is_expanded() -> None:
    expanded = EventRouter({"table.expand.json.payload": "true"}).record(ROW)
    assert json.loads(expanded.value or b"") == {"id": 1, "orderDate": "2019-01-31T12:13:01"}
    kept = EventRouter({"table.expand.json.payload": "true", "table.json.payload.null.behavior": "optional_bytes"})
    assert json.loads(kept.record(ROW).value or b"")["note"] is None


def test_the_topic_is_made_of_a_column() -> None:
    by_stream = {"route.by.field": "stream", "route.topic.replacement": "shop.${routedByValue}.v1"}
    assert EventRouter(by_stream).record(ROW).topic == "shop.orders.v1"
    parts = {
        "route.by.field": "stream",
        "route.topic.regex": "(?<start>or)(.*)",
        "route.topic.replacement": "$2-${start}",
    }
    assert EventRouter(parts).record(ROW).topic == "ders-or"
    other = {"route.by.field": "stream", "route.topic.regex": "nothing", "route.topic.replacement": "never"}
    assert EventRouter(other).record(ROW).topic == "orders"  # a name that does not match stays
    with pytest.raises(InvalidEnvelope, match="has no aggregate_type"):
        EventRouter().record(ROW._replace(aggregate_type=None))


def test_converters_write_plain_text() -> None:
    text = "org.apache.kafka.connect.storage.StringConverter"
    record = EventRouter({"key.converter": text, "value.converter": text}).record(ROW)
    assert (record.key, record.value) == (b"1", ROW.payload_json.encode())


def test_an_empty_payload_may_be_a_tombstone() -> None:
    empty = ROW._replace(aggregate_id="")
    properties = {"table.field.event.payload": "aggregate_id", "route.tombstone.on.empty.payload": "true"}
    assert EventRouter(properties).record(empty).value is None
    assert EventRouter({"table.field.event.payload": "aggregate_id"}).record(empty).value == b'""'


def test_the_properties_file_of_a_connector_is_read(tmp_path: Path) -> None:
    path = tmp_path / "connector.properties"
    path.write_text(
        "connector.class=io.debezium.connector.postgresql.PostgresConnector\n"
        "# the router\n"
        "transforms=outbox\n"
        "transforms.outbox.type=io.debezium.transforms.outbox.EventRouter\n"
        "transforms.outbox.table.field.event.id=event_id\n"
        "transforms.outbox.route.by.field=stream\n"
        "transforms.outbox.route.topic.replacement=${routedByValue}\n"
        "value.converter=org.apache.kafka.connect.json.JsonConverter\n"
        "value.converter.schemas.enable=false\n"
    )
    assert EventRouter.from_file(path).record(ROW).topic == "orders"
    path.write_text("route.by.field=stream\n")
    assert EventRouter.from_file(path).record(ROW).topic == "outbox.event.orders"
    path.write_text("no property\n")
    with pytest.raises(InvalidOption, match="line 1"):
        EventRouter.from_file(path)
    with pytest.raises(InvalidOption, match="cannot be read"):
        EventRouter.from_file(tmp_path / "missing")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"table.field.event.id": "uuid"}, "outbox_event has the columns"),
        ({"table.fields.additional.placement": "event_type"}, "column:placement"),
        ({"table.expand.json.payload": "yes"}, "write true or false"),
        ({"route.topic.regex": "("}, "route.topic.regex"),
        ({"value.converter": "io.confluent.connect.avro.AvroConverter"}, "the relay has"),
        (
            {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "true",
            },
            "the",
        ),
        ({"table.field.event.schema.version": "v"}, "does not know table.field.event.schema.version"),
    ],
)
def test_what_the_relay_cannot_do_is_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        EventRouter(properties)
