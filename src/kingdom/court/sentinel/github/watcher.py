"""GitHub as a source: lists say where to look, the subjects themselves say what happened."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.court.king.routing import type_matches
from kingdom.court.sentinel.errors import CircuitOpen, Missing, Refused, Unauthorized, Unavailable
from kingdom.court.sentinel.github.actions import Account, Action, actions_of
from kingdom.court.sentinel.github.api import connect, own_login, read_story
from kingdom.court.sentinel.github.events import SOURCE, event_of, event_of_notification
from kingdom.court.sentinel.github.listing import Inbox, Listed, RepoList
from kingdom.court.sentinel.github.subject import Ref, Story, entry_time, is_repo
from kingdom.court.sentinel.hints import Hints
from kingdom.court.sentinel.texts import instant
from kingdom.court.sentinel.watcher import Batch

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.models import Event
    from kingdom.court.sentinel.config import GitHubSection

_BATCH: Final = 10  # subjects whose events are made durable together
_OVERLAP: Final = 600.0  # seconds of a subject's story that are read again
_AGAIN_WITHIN: Final = 120.0  # a notification this young may be ahead of its subject
_SAME_TIME: Final = 5.0  # seconds between an act and the time of its notification
_TRIES: Final = 20  # looks at a subject that cannot be read
_SLACK: Final = 1.0  # seconds: a look begins a moment after it was due
_FORGET: Final = 14 * 86400.0  # subjects nobody touched: well before their events are forgotten
log = logging.getLogger("kingdom.court.sentinel")


class Read(NamedTuple):
    """A subject that was looked at."""

    ref: Ref
    story: Story | None
    actions: list[Action]


class GitHubWatcher:
    """The watcher of one GitHub account."""

    name = SOURCE

    def __init__(self, services: Services, section: GitHubSection, token: str) -> None:
        self._clock = services.clock
        self._section = section
        self._client = connect(section, token, services.clock)
        self._hints = Hints(services.home, SOURCE)
        self._account: Account | None = None
        self._asked_for = 0.0  # the interval the server wants
        self._list_at = 0.0
        self._lists_read = 0
        self._listed: Listed | None = None
        self._may_mark = section.mark_read

    @property
    def interval(self) -> float:
        """What was configured, or more if the server wants more."""
        return max(self._section.interval_seconds, self._asked_for)

    def urgent(self) -> bool:
        """Whether a webhook has come."""
        return self._hints.any()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()

    async def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[Batch]:
        """Read the lists, then each subject in them, the longest untouched first."""
        memory = dict(cursor)
        memory.setdefault("baseline", self._clock() - self._section.lookback_hours * 3600)
        self._asked_for = max(self._asked_for, float(memory.get("poll_interval") or 0.0))
        await self._find_out_who_we_are()
        listed = await self._lists(memory)
        refs = [*self._hinted(memory), *_tried_before(memory), *listed.refs]
        todo = sorted(_merged(refs), key=lambda group: max(instant(ref.updated_at) for ref in group))
        batch = Batch([], memory)
        for start in range(0, len(todo), _BATCH):
            batch = Batch([], memory)
            for group in todo[start : start + _BATCH]:
                memory = await self._look(group, memory, batch)
            if start + _BATCH < len(todo):
                batch.cursor = memory
                yield batch
                listed.refs = [ref for group in todo[start + _BATCH :] for ref in group if not ref.hint]
        # The lists are done with together with the last subjects of them: most often there are few, and one write.
        batch.cursor = self._tidied({**memory, **listed.cursor})
        batch.done += listed.unread
        yield batch
        self._listed = None

    def parse(self, batch: Batch) -> list[Event]:
        """The events of what was done."""
        events: list[Event] = []
        for item in batch.items:
            try:
                events += _events(item)
            except (AttributeError, TypeError, ValueError) as error:  # a ValidationError is one
                log.warning("github: %s makes no sense and is left out: %s", item.ref.key, error)
        ignored = self._section.ignore
        return [event for event in events if not any(type_matches(pattern, event.type) for pattern in ignored)]

    async def post_emit(self, batch: Batch) -> None:
        """Mark notifications as read, and take away the hints."""
        for done in batch.done:
            if done.startswith("hint "):
                self._hints.remove(done.removeprefix("hint "))
            elif self._may_mark:
                await self._mark_read(done)

    async def _find_out_who_we_are(self) -> None:
        if self._account is not None:
            return
        section = self._section
        login = section.login or await own_login(self._client)
        if login is None and section.notifications:
            raise Refused("github: the token belongs to no account, so it has no notifications: set github.login")
        own = [*section.own_accounts, *([login] if login else [])]
        self._account = Account.of(login, own, section.teams, for_anyone=section.for_anyone)

    async def _lists(self, memory: dict[str, Any]) -> Listed:
        """What all lists have, when they are due; else what is left of them after a look that was cut short.

        A hint or a retry does not make them due: the server says how often it may be asked.
        """
        now = self._clock()
        if self._list_at - self.interval <= now < self._list_at - _SLACK:  # earlier still: the clock was set back
            return self._listed or Listed([], {})
        full = self._lists_read % self._section.full_read_every == 0
        found, repos = Listed([], {}), dict(memory.get("repos") or {})
        if self._section.notifications:
            inbox = Inbox(self._client, self._section, memory.get("inbox") or {}, memory["baseline"], full=full)
            found = await inbox.list()
            self._asked_for = inbox.poll_interval or self._asked_for
            found.cursor = {"inbox": found.cursor, "poll_interval": self._asked_for}
        for repo in self._section.repos:
            listed = await self._list_repo(repo, repos.get(repo) or {}, memory["baseline"], full=full)
            found.refs += listed.refs
            repos[repo] = listed.cursor
        if repos:
            found.cursor["repos"] = repos
        self._list_at = now + self.interval
        self._lists_read += 1
        self._listed = found
        return found

    async def _list_repo(self, repo: str, cursor: Mapping[str, Any], baseline: float, *, full: bool) -> Listed:
        try:
            return await RepoList(repo, self._client, self._section, cursor, baseline, full=full).list()
        except Missing:
            raise Refused(f"github: {repo} does not exist, or the token may not read it: see github.repos") from None

    def _hinted(self, memory: Mapping[str, Any]) -> list[Ref]:
        found = []
        floor = max(self._clock() - _OVERLAP, memory["baseline"])
        for name, hint in self._hints.read().items():
            match hint:
                case {"repo": repo, "number": int(number), "is_pr": bool(is_pr)} if is_repo(repo):
                    found.append(Ref(repo, number, is_pr, hint=name, since=floor))
                case _:
                    self._hints.remove(name)
        return found

    async def _look(self, group: list[Ref], memory: dict[str, Any], batch: Batch) -> dict[str, Any]:
        """Look at one subject; returns what to remember of it."""
        ref, now = group[0], self._clock()
        done = [other.thread for other in group if other.thread] + [
            f"hint {other.hint}" for other in group if other.hint
        ]
        if ref.number is None:
            batch.items.append(Read(ref, None, []))
            batch.done += done
            return memory
        subjects, again = dict(memory.get("subjects") or {}), dict(memory.get("again") or {})
        known, before = subjects.get(ref.key) or {}, again.pop(ref.key, None)
        since = min(other.since for other in group)
        if known:
            since = min(since, float(known["at"]) - _OVERLAP)
        ref = replace(ref, since=max(since, memory["baseline"]))
        assert self._account is not None
        try:
            story = await read_story(self._client, ref, known.get("sha"))
            actions = actions_of(story, self._account)
        except (CircuitOpen, Unauthorized):
            raise
        except (Missing, Refused, AttributeError, TypeError, ValueError) as error:  # gone, forbidden, or nonsense
            log.warning("github: %s cannot be read and is left out: %s", ref.key, error)
            batch.done += done
            return {**memory, "again": again}
        except Unavailable as error:
            if (tries := _tries(before)) < _TRIES:
                again[ref.key] = _remembered(ref, tries + 1)
            else:
                log.warning("github: %s could not be read %d times and is given up: %s", ref.key, tries, error)
            batch.done += [name for name in done if name.startswith("hint ")]
            return {**memory, "again": again}
        batch.items.append(Read(ref, story, actions))
        touched = max(instant(other.updated_at) for other in group)
        if touched > now - _AGAIN_WITHIN and not _explained(story, touched) and _tries(before) < 2:
            again[ref.key] = _remembered(ref, _tries(before) + 1)  # the notification was faster than its subject
        batch.done += done
        subjects[ref.key] = {"at": _read_until(story), "sha": story.sha}
        return {**memory, "subjects": subjects, "again": again}

    async def _mark_read(self, thread: str) -> None:
        try:
            await self._client.patch(f"/notifications/threads/{thread}")
        except Missing:
            return
        except Refused as error:
            self._may_mark = False
            log.warning("github: notifications cannot be marked as read, and are not from now on: %s", error)

    def _tidied(self, memory: dict[str, Any]) -> dict[str, Any]:
        """Without the subjects nobody has touched for long."""
        subjects = memory.get("subjects") or {}
        old = self._clock() - _FORGET
        if any(known["at"] < old for known in subjects.values()):
            memory["subjects"] = {key: known for key, known in subjects.items() if known["at"] >= old}
        return memory


def _events(item: Read) -> list[Event]:
    if item.story is None:
        return [event_of_notification(item.ref)]
    return [event_of(item.ref, item.story.subject, action) for action in item.actions]


def _merged(refs: Iterable[Ref]) -> list[list[Ref]]:
    """Refs to the same subject together, one with a notification first."""
    groups: dict[str, list[Ref]] = {}
    for ref in refs:
        groups.setdefault(ref.key, []).append(ref)
    return [sorted(group, key=lambda ref: ref.thread is None) for group in groups.values()]


def _read_until(story: Story) -> float:
    """By the server's clock: everything older has been read."""
    return max([instant(story.subject.get("updated_at")), *(entry_time(entry) for entry in story.timeline)])


def _explained(story: Story, touched: float) -> bool:
    """Whether something is there that a notification of that time may be about."""
    times = [instant(story.subject.get("created_at")), *(entry_time(entry) for entry in story.timeline)]
    return story.head_commit is not None or max(times) >= touched - _SAME_TIME


def _tries(before: Any) -> int:
    return int(before["tries"]) if isinstance(before, dict) else 0


def _remembered(ref: Ref, tries: int) -> dict[str, Any]:
    names = ("repo", "number", "is_pr", "updated_at", "thread", "since")
    return {**{name: getattr(ref, name) for name in names}, "tries": tries}


def _tried_before(memory: Mapping[str, Any]) -> list[Ref]:
    found = (memory.get("again") or {}).values()
    return [Ref(**{name: value for name, value in item.items() if name != "tries"}) for item in found]
