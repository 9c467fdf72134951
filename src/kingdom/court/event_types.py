"""The types of events that a court knows, and the schema of each, for those who emit one by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from kingdom.court.document_index import COMMAND_EVENT_SUFFIXES, full_document, stub_document
from kingdom.court.models import Event, Priority
from kingdom.court.packages.installed import load_generals
from kingdom.court.patterns import type_matches
from kingdom.court.problems import API_CONFIG
from kingdom.court.queues import EVENTS
from kingdom.court.sentinel.events import SOURCE_EVENT_TYPES, default_priority
from kingdom.court.trust.text_hash import TEXT_HASH_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kingdom.court.document_index import DocumentIndex
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

_SAMPLES: Final = 3  # events of a type that are read to learn the fields of its payload
_MAX_FIELDS: Final = 30
_MAX_EXAMPLE_CHARS: Final = 80
_MADE_BY_THE_COURT: Final = (TEXT_HASH_FIELD,)
_COMMON: Final = {
    "title": {"type": "string", "examples": ["Discounts for whole carts"]},
    "url": {"type": "string", "examples": ["https://github.com/acme/shop/pull/12"]},
    "author": {"type": "string", "examples": ["grace"]},
}
_NUMBER: Final = {"number": {"type": "integer", "examples": [12]}}
_PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    "github.pr.": {**_NUMBER, **_COMMON, "body": {"type": "string"}, "head": {"type": "string", "examples": ["fix-1"]}},
    "github.issue.": {**_NUMBER, **_COMMON, "body": {"type": "string"}},
    "jira.ticket.": {"key": {"type": "string", "examples": ["SHOP-12"]}, **_COMMON, "description": {"type": "string"}},
}
"""The fields of payloads that matter to a person, by the beginning of the type."""


@dataclass(frozen=True, slots=True)
class KnownEventType:
    """A type of events that a source emits, a general subscribes to, or the queue holds."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    type: Annotated[str, Field(examples=["github.pr.opened"])]
    meaning: Annotated[str, Field(description="What it means, where that is known.")]
    priority: Priority
    generals: Annotated[list[str], Field(description="Generals that subscribe to it, repositories and authors aside.")]


def known_event_types(home: Home, seen: Iterable[str]) -> list[KnownEventType]:
    """Return all types by name. ``seen`` are those of the events in the queue."""
    meanings = {one.type: one.meaning for one in SOURCE_EVENT_TYPES if "*" not in one.type}
    heard = {
        name: [one.type for one in general.manifest.subscribes]
        for name, general in sorted(load_generals(home).by_name.items())
    }
    exact = {pattern for patterns in heard.values() for pattern in patterns if "*" not in pattern}
    emitted = {kind for kind in seen if not kind.endswith(COMMAND_EVENT_SUFFIXES)}
    return [
        KnownEventType(
            type=kind,
            meaning=meanings.get(kind, ""),
            priority=default_priority(kind),
            generals=[name for name, patterns in heard.items() if any(type_matches(one, kind) for one in patterns)],
        )
        for kind in sorted({*meanings, *exact, *emitted})
    ]


async def event_schema(services: Services, index: DocumentIndex, kind: str) -> dict[str, Any]:
    """Return the JSON Schema of an event of a type, as a person gives it.

    The fields of its payload are those of its source, and those that the latest events of the type have.
    """
    page = await index.page([lambda entries: [entry for entry in entries if entry.type == kind]], _SAMPLES)
    payload = dict(next((fields for prefix, fields in _PAYLOADS.items() if kind.startswith(prefix)), {}))
    for entry in page.items:
        stored = await full_document(services, stub_document(entry, EVENTS))
        found = None if stored is None else stored.document.get("payload")
        if isinstance(found, dict):
            payload = {**_fields_of(found), **payload}
    whole = Event.model_json_schema()
    properties = {name: dict(whole["properties"][name]) for name in ("type", "repo", "priority", "payload")}
    properties["type"] |= {"const": kind}
    properties["priority"]["default"] = default_priority(kind)
    properties["payload"]["properties"] = dict(list(payload.items())[:_MAX_FIELDS])
    return {"title": kind, "type": "object", "properties": properties, "required": ["type"]}


def _fields_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the fields of a payload by their values."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in payload.items():
        kind = _json_type(value)
        if kind is None or name in _MADE_BY_THE_COURT:
            continue
        found[name] = {"type": kind}
        if kind in ("integer", "number") or (kind == "string" and 0 < len(value) <= _MAX_EXAMPLE_CHARS):
            found[name]["examples"] = [value]
    return found


def _json_type(value: Any) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    kinds = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value))
