"""The page that emits an event, with a form made from the schema of its type."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import Query
from nicegui import ui

from kingdom.web.api.court_queues import NewEvent
from kingdom.web.dashboard.components import (
    button,
    forget_draft,
    labelled,
    run_and_notify,
    tag,
    text,
    with_draft,
)
from kingdom.web.dashboard.formats import page_url
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.widgets import labelled_field, select_field, text_area, text_field
from kingdom.web.envelope import ApiError, parse_body
from kingdom.web.views.events import emit_event, list_event_types, read_event_schema

_LONG_FIELDS: Final = ("body", "description", "text", "comment", "message")
_MAX_TYPE_CHARS: Final = 200


@page("/events/new", title="emit.title", nav="events", court=True, operation="injectEvent")
async def emit_page(visit: Visit, kind: Annotated[str, Query(alias="type")] = "") -> None:
    """The page that emits an event."""
    words = visit.words
    page_head(words("emit.title"), above=(words("nav.events"), "/events"))
    known = {one.type: one for one in await list_event_types(visit.context)}
    chosen = kind[:_MAX_TYPE_CHARS].strip()
    with tag("div", "k-card k-pad k-form k-column", data_draft_form=f"emit/{chosen}"):
        _choose(visit, sorted(known), chosen)
        if not chosen:
            return
        takers = known[chosen].generals if chosen in known else []
        if chosen in known and known[chosen].meaning:
            text(known[chosen].meaning, "k-muted k-wrap", name="div")
        heard = words("emit.taken", names=", ".join(takers)) if takers else words("emit.nobody")
        text(heard, "k-wrap" if takers else "k-wrap k-text-warn", name="div")
        _EventForm(visit, chosen, await read_event_schema(visit.context, chosen))


def _choose(visit: Visit, types: list[str], chosen: str) -> None:
    words = visit.words

    def go() -> None:
        if choosing.value and choosing.value != chosen:
            ui.navigate.to(page_url("events", "new", type=choosing.value))

    options = types if not chosen or chosen in types else [*types, chosen]
    with labelled_field(words("task.type"), words("emit.type.hint")):
        choosing = ui.select(options, value=chosen or None, with_input=True, new_value_mode="add-unique", on_change=go)
    labelled(choosing.props("outlined dense options-dense").classes("k-field k-mono"), words("task.type"))


class _EventForm:
    """The fields of an event, by its JSON Schema. What is empty is left out."""

    def __init__(self, visit: Visit, kind: str, schema: dict[str, Any]) -> None:
        self._visit = visit
        self._words = words = visit.words
        self._kind = kind
        self._draft = f"emit/{kind}"
        properties = schema["properties"]
        self._payload: dict[str, Any] = properties["payload"]["properties"]
        self._values: dict[str, Any] = {}
        self.repo = ""
        self.priority = properties["priority"]["default"]
        self.more = ""
        text_field(words("task.repo"), self, "repo", hint=words("emit.repo.hint"), draft=f"{self._draft}/repo")
        priorities = {one: words.of("priority", one) for one in properties["priority"]["enum"]}
        select_field(words("task.priority"), priorities, self, "priority")
        text(words("task.payload"), "k-label k-strong", name="div")
        for name, field in self._payload.items():
            self._field(name, field)
        text_area(
            words("emit.more"),
            self,
            "more",
            hint=words("emit.more.hint"),
            mono=True,
            draft=f"{self._draft}/more",
        )
        with tag("div", "k-row k-wrapping"):
            button(words("emit.do"), self._emit, kind="primary", icon="bolt")

    def _field(self, name: str, field: dict[str, Any]) -> None:
        """Draw one field of the payload by its type."""
        kind, example = field.get("type"), next(iter(field.get("examples", ())), "")
        made: Any
        if kind == "boolean":
            options = {"": "–", "true": "true", "false": "false"}
            with labelled_field(name):
                made = ui.select(options, value="")
        elif kind in ("integer", "number"):
            with labelled_field(name):
                made = ui.number(placeholder=str(example), precision=0 if kind == "integer" else None)
        elif kind in ("array", "object") or name in _LONG_FIELDS:
            hint = self._words("emit.json") if kind != "string" else ""
            with labelled_field(name, hint, "" if kind == "string" else "k-mono-field"):
                made = ui.textarea(placeholder=str(example)).props("autogrow")
        else:
            with labelled_field(name):
                made = ui.input(placeholder=str(example))
        made.on_value_change(lambda event: self._values.update({name: event.value}))
        labelled(made.props("outlined dense").classes("k-field"), name).props["data-field"] = name
        if kind not in ("boolean", "integer", "number"):
            with_draft(made, f"{self._draft}/payload.{name}")

    async def _emit(self) -> None:
        made: list[str] = []

        async def act() -> None:
            event = parse_body(
                NewEvent, type=self._kind, repo=self.repo.strip() or None, priority=self.priority, payload=self._given()
            )
            event_id, _ = await emit_event(self._visit.context, event.model_dump(exclude={"id"}))
            made.append(event_id)

        if await run_and_notify(self._visit, act, self._words("emit.did"), "injectEvent"):
            await forget_draft(self._draft)
            ui.navigate.to(page_url("events", made[0]))

    def _given(self) -> dict[str, Any]:
        more = _json(self._words("emit.more"), self.more) if self.more.strip() else {}
        if not isinstance(more, dict):
            raise ApiError(422, "SYS_INVALID", self._words("emit.more.wrong"))
        found = {}
        for name, value in self._values.items():
            if value is None or (isinstance(value, str) and not value.strip()):
                continue
            kind = self._payload[name].get("type")
            if kind == "boolean":
                found[name] = value == "true"
            elif kind == "integer":
                found[name] = int(value)
            elif kind in ("array", "object"):
                found[name] = _json(name, value)
            else:
                found[name] = value
        return {**found, **more}


def _json(name: str, content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise ApiError(422, "SYS_INVALID", f"{name}: {error}") from None
