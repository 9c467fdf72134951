"""Jira Cloud as a source: tickets in the order in which they changed, with what was done to each."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.court.king.routing import type_matches
from kingdom.court.sentinel.errors import CircuitOpen, Unavailable
from kingdom.court.sentinel.hints import Hints
from kingdom.court.sentinel.jira.api import complete, connect, jql_since, own_account, search
from kingdom.court.sentinel.jira.changes import SOURCE, Account, events_of
from kingdom.court.sentinel.texts import instant
from kingdom.court.sentinel.watcher import Batch

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.models import Event
    from kingdom.court.sentinel.config import JiraSection

_OLDER: Final = 3600.0  # seconds before the cursor in which a change may lie that is told only now
_TRIES: Final = 5  # looks that fail because of one ticket
_DAY: Final = 86400.0
log = logging.getLogger("kingdom.court.sentinel")


class JiraWatcher:
    """The watcher of one Jira account.

    The cursor has two times: ``since``, from where each look reads, and ``next``, the newest change the last look saw,
    which becomes ``since`` after the next. So every stretch of time is read twice, by looks at different times, and a
    ticket that slipped from one page to another while they were read is found.
    """

    name = SOURCE

    def __init__(self, services: Services, section: JiraSection) -> None:
        self._clock = services.clock
        self._section = section
        self._client = connect(section, services.clock)
        self._hints = Hints(services.home, SOURCE)
        self._account: Account | None = None
        self._since = 0.0
        self._failed: dict[str, int] = {}
        # What is in the queue already. Every change is read at many looks, and making an event of it is most of the
        # work. Forgotten once a day: what is still to be seen then is renewed in the index of what was seen.
        self._told: set[str] = set()
        self._parsed: list[str] = []
        self._day = 0.0

    @property
    def interval(self) -> float:
        """What was configured."""
        return self._section.interval_seconds

    def urgent(self) -> bool:
        """Whether a webhook has come."""
        return self._hints.any()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()

    async def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[Batch]:
        """Read all tickets that changed since the cursor, less an overlap: the index is behind the tickets."""
        if self._account is None:
            mine = str((await own_account(self._client))["accountId"])
            self._account = Account(mine, frozenset({mine, *self._section.own_accounts}))
        baseline = float(cursor.get("baseline") or self._clock() - self._section.lookback_hours * 3600)
        since, newest = float(cursor.get("since") or baseline), float(cursor.get("next") or baseline)
        before = newest
        overlap = self._section.overlap_minutes * 60
        self._since = max(since - overlap - _OLDER, baseline)
        hints = list(self._hints.read())
        memory = {"baseline": baseline, "since": since, "next": newest}
        async for issues in search(self._client, jql_since(self._section, max(since - overlap, baseline))):
            for issue in issues:
                await self._complete(issue)
                newest = max(newest, instant((issue.get("fields") or {}).get("updated")))
            yield Batch(list(issues), memory)
        yield Batch([], {"baseline": baseline, "since": before, "next": newest}, hints)

    async def _complete(self, issue: dict[str, Any]) -> None:
        """Read the rest of a ticket; one that cannot be read time and again must not hold up all others."""
        key = str(issue.get("key"))
        try:
            await complete(self._client, issue, self._since)
        except CircuitOpen:
            raise
        except Unavailable as error:
            self._failed[key] = self._failed.get(key, 0) + 1
            if self._failed[key] < _TRIES:
                raise
            log.warning("jira: the whole history of %s cannot be read, going on without: %s", key, error)
        else:
            self._failed.pop(key, None)

    def parse(self, batch: Batch) -> list[Event]:
        """What was done to the tickets."""
        assert self._account is not None
        if abs(self._clock() - self._day) > _DAY:
            self._told.clear()
            self._day = self._clock()
        found: list[Event] = []
        for issue in batch.items:
            try:
                found += events_of(
                    issue,
                    self._account,
                    self._since,
                    url=self._section.url,
                    repos=self._section.repos,
                    ignored_fields=frozenset(self._section.ignore_fields),
                    told=self._told,
                )
            except (ValidationError, AttributeError, TypeError, ValueError) as error:
                log.warning("jira: %s makes no sense and is left out: %s", issue.get("key"), error)
        self._parsed = [event.id for event in found]
        ignored = self._section.ignore
        return [event for event in found if not any(type_matches(pattern, event.type) for pattern in ignored)]

    async def post_emit(self, batch: Batch) -> None:
        """Take away the hints; Jira is told nothing."""
        self._told.update(self._parsed)
        self._parsed = []
        for name in batch.done:
            self._hints.remove(name)
