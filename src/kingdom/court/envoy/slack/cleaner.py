"""Removes what is left of threads, questions and requests in Slack when their events have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.activity import recent_entries
from kingdom.court.envoy.slack.context import REACTION_DONE, REACTION_FAILED, REACTION_SEEN
from kingdom.court.envoy.slack.text import escape, own_text, truncate
from kingdom.court.patterns import NOBODY_SUBSCRIBES
from kingdom.court.questions import answers_in
from kingdom.court.queues import MESSAGES, command_events, is_answered
from kingdom.journal.catalog import EventDiscarded

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.context import SlackContext

_CLEAN_INTERVAL_SECONDS: Final = 60.0
_MAX_PEEKED_MESSAGES: Final = 1000
_MAX_EVENTS_PER_RUN: Final = 50  # each takes two reads of a folder
STATUS_REACTIONS: Final = {
    "success": REACTION_DONE,
    "skipped": REACTION_DONE,
    "failed": REACTION_FAILED,
    "timeout": REACTION_FAILED,
    "killed": REACTION_FAILED,
    "cancelled": REACTION_FAILED,
}
"""The reaction that shows how a task ended."""


class StaleStateCleaner:
    """Removes threads, questions and requests whose event ended without a message. Runs once a minute."""

    def __init__(self, context: SlackContext) -> None:
        self._context = context
        self._last_run = context.clock()
        self._last = ""  # the last event that was checked

    async def run(self) -> None:
        context, now = self._context, self._context.clock()
        if now - self._last_run < _CLEAN_INTERVAL_SECONDS:
            return
        self._last_run = now
        context.posts.prune(now)
        threads = context.threads
        mappings, awaiting, received = threads.mappings.all(), threads.awaiting.all(), threads.received.all()
        completed = await self._completed(
            {str(one.get("event_id")) for one in (*mappings.values(), *awaiting.values())} | {*received}
        )
        for task_id, entry in awaiting.items():
            if entry.get("event_id") in completed or await is_answered(context.services, task_id):
                await context.close_question(task_id, await question_outcome(context, task_id))
        threads.mappings.remove([task for task, entry in mappings.items() if entry.get("event_id") in completed])
        if ended := received.keys() & completed.keys():
            discarded = self._discarded_events()
            for event_id in ended:
                self._show_end(received[event_id], completed[event_id], discarded.get(event_id))
        threads.received.remove(completed)

    async def _completed(self, event_ids: set[str]) -> dict[str, str | None]:
        """Return the completed events for which no message is pending, with their outcomes."""
        bus, found = self._context.services.bus, {}
        for event_id in self._events_to_check(event_ids - {"None", ""}):
            record = await bus.find(event_id)
            if record is None or record.status in ("DONE", "DEAD"):
                found[event_id] = None if record is None else record.outcome
        if found:
            for waiting in await bus.peek(MESSAGES, limit=_MAX_PEEKED_MESSAGES):
                context = waiting.envelope.payload.get("context") or {}
                found.pop(str(context.get("event_id")), None)
        return found

    def _events_to_check(self, event_ids: set[str]) -> list[str]:
        """Return the events to check in this run. There is no hurry: important endings have a message."""
        ordered = sorted(event_ids)
        start = next((place for place, one in enumerate(ordered) if one > self._last), 0)
        some = (ordered[start:] + ordered[:start])[:_MAX_EVENTS_PER_RUN]
        self._last = some[-1] if some else ""
        return some

    def _discarded_events(self) -> dict[str, tuple[str, str]]:
        """Return recently discarded events with their types, and why."""
        services = self._context.services
        lines = recent_entries(services.home.journal, services.clock(), [EventDiscarded.spec.name])
        found = [line.fields for line in lines]
        return {str(one.get("event_id")): (str(one.get("event_type")), str(one.get("reason"))) for one in found}

    def _show_end(self, entry: dict[str, Any], outcome: str | None, discarded: tuple[str, str] | None) -> None:
        context, place = self._context, (entry["channel"], entry["ts"])
        if discarded is None:
            context.best_effort.set_reaction(*place, STATUS_REACTIONS.get(str(outcome), REACTION_DONE))
            return
        context.best_effort.add("reactions.remove", channel=place[0], timestamp=place[1], name=REACTION_SEEN)
        event_type, reason = discarded
        unheard = reason == NOBODY_SUBSCRIBES
        text = own_text(context.locale, "nobody" if unheard else "discarded", type=event_type, reason=escape(reason))
        context.best_effort.send_ephemeral(place[0], entry["user"], text, entry.get("thread_ts"))


async def question_outcome(context: SlackContext, task_id: str) -> str:
    """Return what became of a question that was not answered in Slack."""
    answer = answers_in(await command_events(context.services, task_id, "response")).get(task_id)
    if answer is None or not answer.user:
        return own_text(context.locale, "elsewhere")
    return own_text(context.locale, "answered", user=escape(answer.user), text=truncate(escape(answer.text), 1000))
