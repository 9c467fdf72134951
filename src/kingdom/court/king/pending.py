"""Pending events, and the routing table that says which general takes each.

Payloads are not kept: there may be very many events, and deciding about them needs only a few fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml
from pydantic import ValidationError

from kingdom.agents.untrusted import clean, cut_middle
from kingdom.court.cancellations import NOTE_FIELD
from kingdom.court.errors import InvalidDocument
from kingdom.court.models import Event, comment_text, repository_of, subject_of
from kingdom.court.packages.installed import MANIFEST_FILE
from kingdom.court.packages.manifest import EventSubscription
from kingdom.court.patterns import NOBODY_SUBSCRIBES, matches_any, type_matches
from kingdom.court.pull_requests import CHECK_FAILED, PULL_REQUEST_ENDS, is_about_work, pull_request_of
from kingdom.court.queues import parse_document
from kingdom.court.request_threads import is_request
from kingdom.court.trust.policy import People, Person, author_of, people_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from kingdom.bus.delivery import Record
    from kingdom.court.home import Home
    from kingdom.court.packages.installed import Generals
    from kingdom.court.pull_requests import OpenedPullRequests
    from kingdom.court.trust.policy import TrustDecision, TrustPolicy

PRIORITY_RANKS: Final = {"high": 0, "normal": 1, "low": 2}
COMMAND_WORDS: Final = {"human_response": "answer", "task_cancel": "cancel", "task_retry": "retry"}
_NOBODY: Final = People(Person(""))
_MAX_CACHED_ROUTES: Final = 10_000
_DEFAULT_ORDER: Final = 100
_MAX_NOTE_CHARS: Final = 2000
_MAX_JOINING: Final = 10  # events that join another one's task


@dataclass(frozen=True, slots=True)
class Route:
    """The general that takes an event."""

    general: str
    priority: str | None = None  # of the task; None: the event's
    problem: str | None = None  # why the general cannot take it now


class RoutedFields(NamedTuple):
    """The fields of an event that decide which general takes it."""

    type: str
    repo: str | None = None
    author: str | None = None
    people: People = _NOBODY
    opened_by: str | None = None  # the general that opened the pull request


@dataclass(frozen=True, slots=True)
class _RoutingEntry:
    order: int
    general: str
    subscription: EventSubscription
    problem: str | None

    @property
    def rank(self) -> tuple[int, bool, str]:
        return self.order, self.subscription.is_pattern, self.general


class RoutingTable:
    """The subscriptions of all installed generals, in matching order.

    An event about a pull request goes to the general that opened it, if that takes such events: it has the worktree and
    the conversation.

    A general is skipped when the trust policy does not let the event's people use it. A general with an invalid
    manifest keeps its events pending as long as its subscriptions can be read, so that a mistake made while editing a
    manifest discards nothing.
    """

    def __init__(self, generals: Generals, home: Home, trust: TrustPolicy) -> None:
        self._generals = generals.by_name
        self._trust = trust
        entries = [
            _RoutingEntry(general.manifest.order, name, subscription, None)
            for name, general in generals.by_name.items()
            for subscription in general.manifest.subscribes
        ]
        for name in generals.broken:
            entries += _read_broken_manifest(name, home.generals / name / MANIFEST_FILE, generals.problems)
        self._entries = sorted(entries, key=lambda entry: entry.rank)
        self._known: dict[RoutedFields, Route | None] = {}
        self._cancelled_by: dict[str, set[str]] = {}

    def match(self, event: RoutedFields) -> Route | None:
        """Return the route of an event, or None when no general takes it."""
        if event not in self._known:
            if len(self._known) >= _MAX_CACHED_ROUTES:
                self._known.clear()
            self._known[event] = self._find(event)
        return self._known[event]

    def may_cancel(self, event_type: str) -> bool:
        """Whether an event ends tasks of some general."""
        return bool(self.cancelled_by(event_type))

    def cancelled_by(self, event_type: str) -> set[str]:
        """Return the generals whose tasks an event ends."""
        if event_type not in self._cancelled_by:
            if len(self._cancelled_by) >= _MAX_CACHED_ROUTES:
                self._cancelled_by.clear()
            self._cancelled_by[event_type] = {
                name
                for name, general in self._generals.items()
                if any(type_matches(one, event_type) for one in general.manifest.cancel_on)
            }
        return self._cancelled_by[event_type]

    def why_not(self, event: RoutedFields) -> str:
        """Say why no general takes an event."""
        decision = self._trust.judge(event.people)
        reasons = (self._denial_reason(entry, decision) for entry in self._matching(event))
        return next((why for why in reasons if why is not None), NOBODY_SUBSCRIBES)

    def _matching(self, event: RoutedFields) -> list[_RoutingEntry]:
        found = [entry for entry in self._entries if _accepts(entry, event)]
        return sorted(found, key=lambda entry: entry.general != event.opened_by) if event.opened_by else found

    def _find(self, event: RoutedFields) -> Route | None:
        decision = self._trust.judge(event.people)
        for entry in self._matching(event):
            if decision.waits:
                return Route(entry.general, entry.subscription.priority, decision.reason)
            if self._denial_reason(entry, decision) is None:
                return Route(entry.general, entry.subscription.priority, entry.problem)
        return None

    def _denial_reason(self, entry: _RoutingEntry, decision: TrustDecision) -> str | None:
        general = self._generals.get(entry.general)
        return self._trust.denial_reason(decision, entry.general, None if general is None else general.manifest)


def _accepts(entry: _RoutingEntry, event: RoutedFields) -> bool:
    subscription, repo, author = entry.subscription, event.repo, event.author
    return (
        type_matches(subscription.type, event.type)
        and (not subscription.repos or matches_any(repo, subscription.repos))
        and not matches_any(repo, subscription.exclude_repos)
        and (not subscription.authors or matches_any(author, subscription.authors))
        and not matches_any(author, subscription.exclude_authors)
        and (not subscription.own or entry.general == event.opened_by)
    )


def _read_broken_manifest(name: str, path: Path, problems: list[str]) -> list[_RoutingEntry]:
    """Return the subscriptions that can still be read from an invalid manifest."""
    problem = next((text for text in problems if text.startswith(str(path.parent))), "its manifest is invalid")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return []
    if not isinstance(document, dict):
        return []
    found, order = document.get("subscribes"), document.get("order")
    entries = []
    for item in found if isinstance(found, list) else []:
        try:
            subscription = EventSubscription.model_validate(item)
        except ValidationError:
            continue
        entries.append(_RoutingEntry(order if isinstance(order, int) else _DEFAULT_ORDER, name, subscription, problem))
    return entries


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """What the king keeps of an event in ``pending/``."""

    id: str
    type: str
    position: int  # in the order in which events were read
    people: People = _NOBODY
    priority: str = "normal"
    repo: str | None = None
    author: str | None = None
    subject: str | None = None
    pull_request: str | None = None  # its address, unless it has ended before
    opened_by: str | None = None  # the general that opened the pull request
    led_to: str | None = None  # the subject of the pull request that was opened for this issue, ticket or thread
    opened_for: str | None = None  # the subject of what the pull request was opened for
    command: str | None = None  # answer, cancel or retry: a person's command to the king
    task: str | None = None  # the task that the command is about
    note: str = ""  # the reason of a cancellation, to post for the requester
    at: float = 0.0
    says: bool = False  # it has a comment, which may answer a question
    invalid: str | None = None  # why the document is not a valid event

    @property
    def routed(self) -> RoutedFields:
        return RoutedFields(self.type, self.repo, self.author, self.people, self.opened_by)

    @property
    def works_on(self) -> str | None:
        """The subject that no other task may work on at the same time."""
        return self.led_to or self.subject

    @property
    def topic(self) -> str | None:
        """The subject of what was first asked for."""
        return self.opened_for or self.subject


@dataclass(slots=True)
class PendingGroup:
    """The pending events of one general and one priority, oldest first."""

    general: str
    priority: str
    problem: str | None
    events: dict[str, PendingEvent] = field(default_factory=dict)


class PendingEvents:
    """All pending events, grouped by the general that takes them."""

    def __init__(self, pull_requests: OpenedPullRequests) -> None:
        self._pull_requests = pull_requests
        self._events: dict[str, PendingEvent] = {}
        self._groups: dict[tuple[str, str, str | None], PendingGroup] = {}
        self._group_of: dict[str, PendingGroup] = {}
        self._last_position = 0
        self._about: dict[str, dict[str, None]] = {}  # events by their subject
        self._own: dict[str, dict[str, None]] = {}  # events about pull requests of the court, by their address
        self._overtaking: list[PendingEvent] = []
        self.direct: dict[str, PendingEvent] = {}  # without a general: commands, invalid and unwanted events

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._events

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[PendingEvent]:
        return iter(self._events.values())

    def groups(self) -> list[PendingGroup]:
        """Return the groups that are not empty, most urgent first."""
        return sorted(
            (group for group in self._groups.values() if group.events),
            key=lambda group: (PRIORITY_RANKS[group.priority], group.general),
        )

    def add(self, records: Iterable[Record], routing: RoutingTable) -> None:
        for record in records:
            envelope = record.envelope
            self._last_position += 1
            pending = _pending_event(envelope.payload, envelope.event_id, envelope.type, self._last_position)
            self._put(self._of_opened(pending))
            self._enqueue(self._events[pending.id], routing)
            if routing.may_cancel(pending.type):
                self._overtaking.append(self._events[pending.id])

    def take_overtaking(self) -> list[PendingEvent]:
        """Return the events that were read since the last call and may end tasks."""
        found, self._overtaking = self._overtaking, []
        return found

    def overtaken(self, by: PendingEvent, routing: RoutingTable) -> list[PendingEvent]:
        """Return what waits about the same thing, happened before, and is for a general whose tasks the event ends.

        Other events that end tasks stay: such a general may have to clean up. Of several of a type the last one counts.
        """
        waiting = self._waiting_about(by.subject, routing.cancelled_by(by.type))
        found = [one for one in waiting if one.subject == by.subject]  # not what led to it
        return [
            one
            for one in found
            if (one.at < by.at if one.type == by.type else one.at <= by.at and not routing.may_cancel(one.type))
        ]

    def attach(self, subjects: AbstractSet[str], routing: RoutingTable) -> None:
        """Let what waits for these issues and tickets go on with the pull requests that were opened for them."""
        ids = {one: None for subject in subjects for one in self._about.get(subject, ())}
        waiting = [self._events[one] for one in ids if is_about_work(self._events[one].type)]
        for pending in waiting:
            self._forget(pending)
            self._put(self._of_opened(pending))
        if waiting:
            self.reroute(routing)

    def _of_opened(self, pending: PendingEvent) -> PendingEvent:
        """Return an event with the pull request that a task opened, if it is about that or about its issue."""
        if pending.subject is not None and is_about_work(pending.type):
            opened = self._pull_requests.find_for(pending.subject)
            if (
                opened is not None
                and is_request(pending.type)
                and (pending.repo or opened.repo or "").lower() != opened.repo
            ):
                opened = None  # it names another repository
            if opened is not None:
                pending = replace(pending, pull_request=opened.url, led_to=opened.subject)
        else:
            opened = self._pull_requests.find(pending.pull_request)
        if opened is None:
            return pending
        return replace(pending, opened_by=opened.general, opened_for=opened.opened_for)

    def _put(self, pending: PendingEvent) -> None:
        self._events[pending.id] = pending
        for index, key in self._indexes_of(pending):
            index.setdefault(key, {})[pending.id] = None

    def _forget(self, pending: PendingEvent) -> None:
        for index, key in self._indexes_of(pending):
            del index[key][pending.id]
            if not index[key]:
                del index[key]

    def _indexes_of(self, pending: PendingEvent) -> Iterator[tuple[dict[str, dict[str, None]], str]]:
        yield from ((self._about, one) for one in (pending.subject, pending.led_to) if one is not None)
        if pending.opened_by is not None and pending.pull_request is not None:
            yield self._own, pending.pull_request

    def joining(self, chosen: PendingEvent, general: str, *, same_people: bool) -> list[PendingEvent]:
        """Return further events about the same pull request for the general that opened it: one task is for all.

        A failed check is joined by others only: it is skipped when it is old. What was said on the issue is answered
        there, so it has a task of its own.
        """
        if chosen.opened_by != general or chosen.type in PULL_REQUEST_ENDS:
            return []
        groups = {one: self._group_of.get(one) for one in self._own.get(chosen.pull_request or "", ())}
        found = [self._events[one] for one, group in groups.items() if group is not None and group.general == general]
        return [
            one
            for one in found
            if one.id != chosen.id
            and one.subject == chosen.subject
            and one.type not in PULL_REQUEST_ENDS
            and (chosen.type != CHECK_FAILED or one.type == CHECK_FAILED)
            and (one.people == chosen.people or not same_people)
        ][:_MAX_JOINING]

    def first_said(self, subject: str | None, general: str, since: float) -> PendingEvent | None:
        """Return the first event for a general with a comment on a subject, of those since a time."""
        found = [one for one in self._waiting_about(subject, {general}) if one.says]
        said = [one for one in found if one.at >= since]
        return min(said, key=lambda one: (one.at, one.position), default=None)

    def _waiting_about(self, subject: str | None, generals: AbstractSet[str]) -> list[PendingEvent]:
        """Return the events about a subject that are to be dispatched to some generals."""
        found = [self._events[one] for one in self._about.get(subject or "", ()) if one in self._group_of]
        return [one for one in found if self._group_of[one.id].general in generals]

    def keep_from_dispatch(self, event_id: str) -> None:
        """Take an event out of its group: it is an answer, and begins nothing new."""
        del self._group_of.pop(event_id).events[event_id]

    def remove(self, event_id: str) -> None:
        if (pending := self._events.pop(event_id, None)) is not None:
            self._forget(pending)
            self.direct.pop(event_id, None)
            group = self._group_of.pop(event_id, None)
            if group is not None:
                del group.events[event_id]

    def clear(self) -> None:
        self._overtaking.clear()
        for event_id in list(self._events):
            self.remove(event_id)

    def reroute(self, routing: RoutingTable) -> None:
        """Group all events again, after a change of manifests or of the trust policy."""
        self._groups.clear()
        self._group_of.clear()
        self.direct.clear()
        for pending in self._events.values():
            self._enqueue(pending, routing)

    def _enqueue(self, pending: PendingEvent, routing: RoutingTable) -> None:
        route: Route | None = None
        if not (pending.command or pending.invalid):
            route = routing.match(pending.routed)
        if route is None:
            self.direct[pending.id] = pending
            return
        priority = route.priority or pending.priority
        key = route.general, priority, route.problem
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PendingGroup(route.general, priority, route.problem)
        group.events[pending.id] = pending
        self._group_of[pending.id] = group


def _pending_event(document: Any, event_id: str, event_type: str, position: int) -> PendingEvent:
    try:
        event = parse_document(Event, document, event_id)
    except InvalidDocument as error:
        return PendingEvent(event_id, event_type, position, invalid=str(error))
    words = event.type.split(".")
    command = COMMAND_WORDS.get(words[1]) if len(words) == 2 else None
    task, note = (event.payload.get(name) if command else None for name in ("task_id", NOTE_FIELD))
    return PendingEvent(
        id=event.id,
        type=event.type,
        position=position,
        people=people_of(document),
        priority=event.priority,
        repo=event.repo or repository_of(event.payload),
        author=author_of(event.payload),
        subject=subject_of(document),
        pull_request=pull_request_of(event.type, event.payload),
        command=command,
        task=task if isinstance(task, str) else None,
        note=cut_middle(clean(note).strip(), _MAX_NOTE_CHARS) if isinstance(note, str) else "",
        at=event.created_at.timestamp(),
        says=bool(comment_text(event.payload)),
    )
