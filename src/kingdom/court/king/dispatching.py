"""An event becomes a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.errors import InvalidDocument
from kingdom.court.king.cases import Case
from kingdom.court.king.cleaning import storable
from kingdom.court.king.messages import title_of
from kingdom.court.king.times import moment_of
from kingdom.court.models import EVENT_FIELDS, Event, Task
from kingdom.court.queues import read
from kingdom.court.subjects import subject_of

if TYPE_CHECKING:
    from kingdom.bus import Delivery
    from kingdom.court.king.admission import Chosen
    from kingdom.court.king.desk import Desk


def dispatch(desk: Desk, delivery: Delivery, chosen: Chosen) -> None:
    """Give a claimed event to its general."""
    document = delivery.envelope.payload
    try:
        event = read(Event, document, delivery.event_id)
    except InvalidDocument as error:  # it was changed after it was looked at
        desk.plan.invalid[delivery.event_id] = str(error)
        desk.admission.forgo(chosen.task_id)
        return
    if hindrance := desk.hindrance(document, chosen.general):  # the same
        desk.plan.discard(event.id, event.type, hindrance)
        desk.admission.forgo(chosen.task_id)
        return
    subject = subject_of(document)
    case = Case(
        root=event.id,
        task=chosen.task_id,
        general=chosen.general,
        type=event.type,
        priority=chosen.priority,
        title=title_of(document, subject),
        thread=chosen.task_id,
        subject=subject,
        events=[event.id],
    )
    task = Task.model_validate(
        {
            "id": chosen.task_id,
            "event_id": event.id,
            "target_general": chosen.general,
            "type": event.type,
            "payload": storable(event.payload),
            "priority": chosen.priority,
            "created_at": moment_of(desk.clock()),
            # So that the general need not look for it: for many at once that would be most of its work.
            "event": storable({name: document.get(name) for name in EVENT_FIELDS}),
            **desk.permitted(document),
            **({} if event.repo is None else {"repo": storable(event.repo)}),
        }
    )
    desk.open_case(case, task)
