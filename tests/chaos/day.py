"""One day of a busy team, replayed: what happened in GitHub, Jira and Slack, and what a court must have made of it.

Real clients talk over loopback to servers of ours; only the clock is a fake. Everything follows from the seed. The end
is exact: each act of a person is one event with its own id, our own acts and talk among colleagues are none, each of
our messages is one post.

It is not a quiet day. The sentinel is restarted, the repository renamed, tickets move to another project, the token's
authorization for single sign-on lapses, and servers fail, refuse and ask to wait.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from kingdom.court.queues import EVENTS
from kingdom.court.sentinel import Sentinel
from tests.chaos.processes import Violation
from tests.support.embassies import Embassy
from tests.support.fake_github import ME, REPO, FakeGitHub
from tests.support.fake_jira import ME as JIRA_ME
from tests.support.fake_jira import FakeJira
from tests.support.fake_slack import ANN, BEN, BOT, CHANNEL, DIRECT, EVE

MINUTES = 24 * 60
SUBJECTS, TICKETS = 150, 60
_REIGN_EVERY = 15  # minutes
_AFTERWARDS = 90  # minutes: the index of Jira is behind, Slack delivers late, and pauses after failures are long
PEOPLE = ("grace", "ann", "linus", "barbara")
TOKENS = {"GITHUB_TOKEN": "ghp-for-tests", "JIRA_API_TOKEN": "jira-for-tests"}


@dataclass(frozen=True)
class Size:
    """How much happens in a day."""

    notifications: int = 2000
    changes: int = 500
    messages: int = 1000
    minutes: int = MINUTES

    def part(self, of: int) -> Size:
        """A shorter day that is as busy."""
        return Size(self.notifications // of, self.changes // of, self.messages // of, self.minutes // of)


@dataclass
class Tally:
    """What came of a day."""

    size: Size
    events: int = 0
    posts: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        asked = ", ".join(f"{number:,} {name}" for name, number in sorted(self.requests.items()))
        return (
            f"{self.size.notifications:,} notifications, {self.size.changes:,} ticket changes and "
            f"{self.size.messages:,} Slack messages of {self.size.minutes:,} minutes became {self.events:,} events and "
            f"{self.posts:,} posts, exactly, in {self.seconds:.1f} s ({self.cpu:.1f} s of CPU; requests: {asked})"
        )


class BusyDay:
    """A court's sentinel and envoy through one day."""

    def __init__(self, root: Path, seed: int, size: Size = Size()) -> None:  # noqa: B008 - frozen
        self._embassy = Embassy(root)
        self._random = random.Random(seed)
        self._size = size
        self.clock = self._embassy.clock
        self.github = FakeGitHub(self.clock)
        self.jira = FakeJira(self.clock)
        self.jira.lag = 90.0
        self.expected: set[str] = set()
        self.sent: list[str] = []
        self._opened: dict[int, int] = {}  # when a subject was opened,
        self._pushed: dict[int, tuple[int, str]] = {}  # and last pushed to
        self._repo = REPO
        self._troubles = self._trouble_times()
        self._moved = 0  # tickets
        self.optional: set[str] = set()  # heads that may have been replaced before anybody could look
        self._again: list[tuple[int, dict[str, Any]]] = []  # what Slack delivers once more, and when

    async def run(self) -> Tally:
        """Live through it; :class:`Violation` when the end is not exactly what it should be."""
        with patch.dict(os.environ, TOKENS):
            tally = await self._run()
        self._check()
        return tally

    async def _run(self) -> Tally:
        tally, began, cpu = Tally(self._size), time.monotonic(), time.process_time()
        async with self._embassy.open() as embassy, self.github, self.jira:
            embassy.home.config.mkdir(exist_ok=True)
            watched = {"github": {"url": self.github.url}, "jira": {"url": self.jira.url, "email": "b@acme.example"}}
            (embassy.home.config / "sentinel.yaml").write_text(yaml.safe_dump(watched))
            sentinel = Sentinel(embassy.services)
            async with embassy.sent() as envoy:
                await embassy.slack.until(lambda: embassy.slack.sockets)
                for minute, acts in enumerate([*self._acts(), *[[]] * _AFTERWARDS]):
                    if self._trouble(minute):
                        await sentinel.stop()
                        sentinel = Sentinel(embassy.services)
                    await self._live(minute, acts)
                    await sentinel.tick()
                    await sentinel.idle()
                    await envoy.tick()
                    if minute % _REIGN_EVERY == 0:
                        await self._reign()
                    self.clock.now += 61.0
            await sentinel.stop()
        tally.seconds, tally.cpu = time.monotonic() - began, time.process_time() - cpu
        tally.events, tally.posts = len(self.expected), len(self.sent)
        calls = embassy.slack.calls
        tally.requests.update(GitHub=len(self.github.requests), Jira=len(self.jira.requests), Slack=len(calls))
        return tally

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────

    def _acts(self) -> Iterable[list[Callable[[int], Any]]]:
        """What is done in each minute."""
        size = self._size
        acts: list[Callable[[int], Any]] = [
            *[self._in_github] * size.notifications,
            *[self._in_jira] * size.changes,
            *[self._in_slack] * size.messages,
            *[self._message] * (size.messages // 4),
        ]
        day: list[list[Callable[[int], Any]]] = [[] for _ in range(size.minutes)]
        for act in acts:
            day[self._random.randrange(size.minutes)].append(act)
        return day

    def _trouble_times(self) -> dict[int, list[str]]:
        """What goes wrong in which minute."""
        minutes = self._size.minutes
        kinds = {"rename": 700, "lapse": 500, "restart": 45, "github": 50, "jira": 90, "move": 40}
        found: dict[int, list[str]] = {}
        for kind, every in kinds.items():
            for _ in range(minutes // every + 1):
                minute = self._random.randrange(minutes)
                found.setdefault(minute, []).append(kind)
                if kind == "lapse":
                    found.setdefault(min(minute + max(minutes // 20, 5), minutes), []).append("regain")
        return found

    def _trouble(self, minute: int) -> bool:
        """Let things go wrong; returns whether the sentinel is restarted."""
        kinds = self._troubles.get(minute, [])
        for kind in kinds:
            if kind == "rename":
                self.github.rename(self._repo, f"acme/shop-{minute}")
                self._repo = f"acme/shop-{minute}"
            elif kind == "lapse":
                self.github.lapsed.add("acme")
            elif kind == "regain":
                self.github.lapsed.clear()
            elif kind == "move" and self.jira.issues:
                key = self._random.choice(list(self.jira.issues))
                self._moved += 1
                identity, change = self.jira.id_of(key), self.jira.move(key, f"OPS-{self._moved}")
                self.expected.add(f"evt-jira-{identity}-change-{change}")
            elif kind in ("github", "jira"):
                self._fault(kind)
        return "restart" in kinds

    def _fault(self, source: str) -> None:
        if source == "jira":
            self.jira.fail("search", *self._random.choice(((503, 2), (429, 1), (500, 4))))
            return
        secondary = {"message": "You have exceeded a secondary rate limit"}
        match self._random.randrange(6):
            case 0:
                self.github.fail("GET /repos", 502, times=3)
            case 1:
                self.github.fail("GET /notifications", 403, body=secondary, Retry_After="120")
            case 2:
                self.github.fail("/pulls/", 404, times=2, body={"message": "Not Found"})
            case 3:
                self.github.fail("/timeline", 403, times=2, body={"message": "Forbidden"})
            case 4:
                reset = str(int(self.clock.now) + 300)
                self.github.fail("GET /repos", 403, X_RateLimit_Remaining="0", X_RateLimit_Reset=reset)
            case _:
                self.github.cut("PATCH", times=2)

    def _is_troubled(self, minute: int) -> bool:
        """Whether nobody may have looked at GitHub in this minute."""
        if self.github.lapsed:
            return True
        near = (self._troubles.get(other, ()) for other in range(minute - 12, minute + 2))
        return any(set(kinds) & {"github", "restart", "lapse", "regain"} for kinds in near)

    async def _live(self, minute: int, acts: list[Callable[[int], Any]]) -> None:
        for act in acts:
            outcome = act(minute)
            if outcome is not None:
                await outcome
        due = [envelope for at, envelope in self._again if at <= minute]
        self._again = [(at, envelope) for at, envelope in self._again if at > minute]
        for envelope in due:
            await self._embassy.slack.delivered(envelope)

    async def _reign(self) -> None:
        """Be the king, for whom everything is done at once that was asked for in Slack, where its end is shown."""
        bus = self._embassy.services.bus
        asked = ["slack.dm.received", "slack.mention.received"]
        await bus.settle(done=await bus.claim(EVENTS, worker="king", types=asked, limit=1000))

    def _in_github(self, minute: int) -> None:
        github, luck = self.github, self._random.random()
        if len(self._opened) < 5 or (luck < 0.1 and len(self._opened) < SUBJECTS):
            number = len(self._opened) + 1
            github.open(number, self._random.choice(PEOPLE), pr=number % 3 > 0, repo=self._repo)
            self._opened[number] = minute
            self._github_event(number, "opened")
            return
        number = self._random.choice(list(self._opened))
        by, is_pr, settled = self._random.choice(PEOPLE), number % 3 > 0, self._opened[number] < minute
        if luck < 0.18 and is_pr and settled:
            sha = github.push(number, by)
            if (before := self._pushed.get(number)) is not None and before[0] == minute:
                self.expected.discard(before[1])  # of two in a minute, only the last is ever the head
            self._pushed[number] = minute, self._github_event(number, f"updated-{sha[:16]}")
            if self._is_troubled(minute):
                self.optional.add(self._pushed[number][1])
        elif luck < 0.25 and is_pr and settled:
            self._github_event(number, f"request-{github.request_review(number, by=by)}")
        elif luck < 0.3 and settled:
            self._github_event(number, f"assigned-{github.assign(number, by=by)}")
        elif luck < 0.4 and is_pr:
            self._github_event(number, f"review-{github.review(number, 'APPROVED', by=by, lines=('here',))}")
        elif luck < 0.45:
            github.comment(number, "what we said ourselves", by=ME)
        else:
            text = f"@{ME} please" if luck > 0.9 else "I see"
            self._github_event(number, f"comment-{github.comment(number, text, by=by)}")

    def _github_event(self, number: int, name: str) -> str:
        event_id = f"evt-github-900000-{number}-{name}"
        self.expected.add(event_id)
        return event_id

    def _in_jira(self, _minute: int) -> None:
        jira, luck = self.jira, self._random.random()
        if not jira.issues or (luck < 0.15 and len(jira.issues) < TICKETS):
            key = f"SHOP-{len(jira.issues) + 1}"
            jira.create(key)
            self.expected.add(f"evt-jira-{jira.id_of(key)}-created")
            return
        key = self._random.choice(list(jira.issues))
        if luck < 0.5:
            self.expected.add(f"evt-jira-{jira.id_of(key)}-comment-{jira.comment(key)}")
        elif luck < 0.6:
            self.expected.add(f"evt-jira-{jira.id_of(key)}-change-{jira.change(key, 'assignee', JIRA_ME)}")
        elif luck < 0.65:
            jira.change(key, by=JIRA_ME)
        else:
            self.expected.add(f"evt-jira-{jira.id_of(key)}-change-{jira.change(key)}")

    async def _in_slack(self, minute: int) -> None:
        slack, luck = self._embassy.slack, self._random.random()
        user, channel = self._random.choice((ANN, BEN)), CHANNEL if luck < 0.8 else DIRECT
        to_us = luck > 0.5
        event = slack.posted(f"<@{BOT}> look" if to_us and channel == CHANNEL else "lunch?", user, channel)
        if luck > 0.97:
            event["user"] = EVE  # whom nobody has allowed to ask
        elif to_us:
            self.expected.add(f"evt-slack-{channel}-{event['ts']}")
        envelope = slack.envelope(event)
        await slack.delivered(envelope)
        if to_us and channel == CHANNEL:
            await slack.delivered(slack.envelope({**event, "type": "app_mention"}))
        if luck < 0.1 or luck > 0.9:
            self._again.append((minute + self._random.choice((1, 7)), envelope))

    async def _message(self, _minute: int) -> None:
        number = len(self.sent) + 1
        task = f"task-20260207-{number:03d}"
        await self._embassy.tell(number, "thread_start", f"message {number}", task_id=task, event_id=f"evt-x-{number}")
        self.sent.append(f"msg-20260207-{number:03d}")

    # ── what must have come of it ─────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        embassy = self._embassy
        found = {path.stem for path in (embassy.home.queue / EVENTS).glob("*/*.json")}
        wrong = [f"lost: {one}" for one in sorted(self.expected - self.optional - found)]
        wrong += [f"made up: {one}" for one in sorted(found - self.expected - self.optional)]
        told = Counter(line["event_id"] for line in embassy.journal("event.detected"))
        surely = sorted(self.expected - self.optional)
        wrong += [f"told {told[one]} times: {one}" for one in surely if told[one] != 1]
        wrong += [f"told {told[one]} times: {one}" for one in sorted(self.optional) if told[one] > 1]
        posts = Counter(embassy.slack.intents())
        wrong += [f"posted {posts[one]} times: {one}" for one in self.sent if posts[one] != 1]
        wrong += [f"never asked for: {one}" for one in posts if one not in self.sent]
        wrong += [f"not settled: {one}" for one in embassy.messages("pending")]
        wrong += [f"left in the inbox: {one}" for one in embassy.inbox()]
        unread = [one for one, thread in self.github.threads.items() if thread["unread"]]
        wrong += [f"not marked as read: {one}" for one in unread]
        if wrong:
            raise Violation(f"{len(wrong)} things are wrong, the first are:\n" + "\n".join(wrong[:20]))
