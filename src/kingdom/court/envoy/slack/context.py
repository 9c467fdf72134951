"""What the Slack sender and listener share: API, state files, channels, rate limits, best-effort calls."""

from __future__ import annotations

import logging
import re
from collections import deque
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from zoneinfo import ZoneInfo

from kingdom.base.files import ChangeDetector, read_object, sync_directory, write_atomic, write_json
from kingdom.base.text import one_line
from kingdom.court.envoy.port import TryLater
from kingdom.court.envoy.slack.api import BotIdentity, SlackApi, SlackError, SlackRefused
from kingdom.court.envoy.slack.posts import closed_question
from kingdom.court.home import check_name
from kingdom.court.loop import remove_stale_temporaries
from kingdom.court.request_threads import SlackThread
from kingdom.court.trust.policy import People, Person, TrustFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kingdom.court.config import SystemConfig
    from kingdom.court.envoy.config import SlackSection, SlackTokens
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.trust.policy import TrustDecision


Entry = dict[str, Any]
_LATE_ANSWER_SECONDS: Final = 60.0  # so soon after an answer, others may not have noticed that the question is closed
_POST_TTL_SECONDS: Final = 30 * 86400.0  # a failed message may be requeued within this time
_THREAD_TTL_SECONDS: Final = 30 * 86400.0  # what is older does not go on in its thread
_CHANNEL_ID: Final = re.compile(r"[CGD][A-Z0-9]{2,30}\Z")
_USER_ID: Final = re.compile(r"@?([UW][A-Z0-9]{2,30})\Z")
_NAME_TTL_SECONDS: Final = 7 * 86400.0  # people rarely change their name
_NAME_RETRY_SECONDS: Final = 600.0
_BURST_POSTS: Final = 3.0  # Slack allows short bursts above its limit
REACTION_SEEN: Final = "eyes"
REACTION_DONE: Final = "white_check_mark"
REACTION_FAILED: Final = "x"
_MAX_PENDING_CALLS: Final = 500  # beyond that, the oldest are dropped
_HARMLESS_ERRORS: Final = ("already_reacted", "no_reaction", "message_not_found", "thread_not_found")
log = logging.getLogger("kingdom.court.envoy.slack")


class EntryFile:
    """A JSON file with entries by key, for people to read. Only the envoy writes it.

    Each change is written at once; it survives a power cut only if ``durable``.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self._entries: Mapping[str, Entry] = {}
        self._changes = ChangeDetector(path)

    def all(self) -> Mapping[str, Entry]:
        """Return all entries. Do not change them."""
        if self._changes.changed():
            self._entries = {key: entry for key, entry in read_object(self._path).items() if isinstance(entry, dict)}
        return self._entries

    def get(self, key: str) -> Entry | None:
        """Return a copy of an entry."""
        found = self.all().get(key)
        return None if found is None else dict(found)

    def put(self, key: str, entry: Entry) -> None:
        entries = self.all()
        if entries.get(key) != entry:
            self._write({**entries, key: entry})

    def remove(self, keys: Iterable[str]) -> None:
        entries = self.all()
        gone = entries.keys() & set(keys)
        if gone:
            self._write({key: entry for key, entry in entries.items() if key not in gone})

    def _write(self, entries: dict[str, Entry]) -> None:
        write_json(self._path, entries, durable=self._durable)
        self._entries = entries
        self._changes.accept()


class ThreadStore:
    """The envoy's state files: threads of tasks, open questions, posts that became events, the last report."""

    def __init__(self, home: Home) -> None:
        folder = home.role("envoy")
        folder.mkdir(parents=True, exist_ok=True)
        self.mappings = EntryFile(folder / "thread-mappings.json")
        """By the task that started a thread: channel, thread_ts, event_id, created_at."""
        self.awaiting = EntryFile(folder / "awaiting-responses.json")
        """By the task that asks: channel, thread_ts, message_ts, msg_id, choices, deadline, created_at; and ``answer``
        while an answer is being processed."""
        self.received = EntryFile(folder / "received.json", durable=False)
        """By event: the post of a person that became the event (channel, ts), until the event is completed."""
        self.strangers = EntryFile(folder / "strangers.json", durable=False)
        """By user who may not use the court: when they were last told so."""
        self.requests = EntryFile(folder / "requests.json", durable=False)
        """By subject of a thread: the users who have asked for something in it, and when the last of them did."""
        self.topics = EntryFile(folder / "topics.json", durable=False)
        """By what people asked for, such as an issue: the thread in which its tasks were reported, and when last."""

    def note_request(self, thread: SlackThread, user: str, now: float) -> None:
        """Remember who has asked for something in a thread."""
        users = (self.requests.get(thread.subject) or {}).get("users") or []
        _put_recent(self.requests, thread.subject, {"users": list(dict.fromkeys([*users, user])), "at": now})

    def is_requested(self, thread: SlackThread) -> bool:
        """Return whether somebody has asked for something in a thread."""
        return self.requests.get(thread.subject) is not None

    def has_asked(self, thread: SlackThread, user: str) -> bool:
        """Return whether a user has asked for something in a thread."""
        return user in ((self.requests.get(thread.subject) or {}).get("users") or [])

    def note_topic(self, topic: str, thread: SlackThread, now: float) -> None:
        """Remember the thread of a topic: the first one stays."""
        known = self.topic_thread(topic, now)
        if known in (None, thread):
            _put_recent(self.topics, topic, {"channel": thread.channel, "thread_ts": thread.ts, "at": now})

    def topic_thread(self, topic: str, now: float) -> SlackThread | None:
        """Return the thread of a topic: that of a request itself, or the one in which its tasks were reported."""
        if (own := SlackThread.of_subject(topic)) is not None:
            return own
        entry = self.topics.get(topic)
        if entry is None or now - float(entry.get("at") or 0.0) > _THREAD_TTL_SECONDS:
            return None
        return SlackThread(str(entry.get("channel")), str(entry.get("thread_ts")))

    def asked_in(self, channel: str, thread_ts: str) -> str | None:
        """Return the task that has an open question in a thread."""
        for task, one in self.awaiting.all().items():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts) and not one.get("answer"):
                return task
        return None

    def answered_in(self, channel: str, thread_ts: str, answered_ts: str) -> None:
        """Store the time of the last answer in a thread."""
        for task, one in self.mappings.all().items():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts):
                self.mappings.put(task, {**one, "answered_ts": answered_ts})

    def just_answered(self, channel: str, thread_ts: str, ts: str) -> bool:
        """Return whether a reply follows an answer so closely that it was probably meant as an answer, too."""
        for one in self.mappings.all().values():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts) and one.get("answered_ts"):
                return float(ts) - float(one["answered_ts"]) < _LATE_ANSWER_SECONDS
        return False


def _put_recent(file: EntryFile, key: str, entry: Entry) -> None:
    """Put an entry with a time ``at``, and forget those whose time is long past."""
    oldest = entry["at"] - _THREAD_TTL_SECONDS
    file.remove([one for one, found in file.all().items() if float(found.get("at") or 0.0) < oldest])
    file.put(key, entry)


@dataclass(slots=True)
class SlackPost:
    """What the envoy intends to post for a message, and whether it did.

    It is stored before the post is sent, and again when everything is done. If it is found without ``ts``, the post may
    exist: search for it before posting again.
    """

    channel: str
    thread_ts: str | None
    at: float  # the time of the first intent
    ts: str | None = None  # Slack's id of the post, once known
    edits: str | None = None  # the whole new text of the post ``ts``, if the message is added to an existing post
    answered: bool = False  # the question in it was answered
    done: bool = False  # the post is sent, and everything that follows from it is done
    intents: list[str] = field(default_factory=list)  # the ids of the messages in the post


class PostStore:
    """The intended posts: a file for each message in ``state/envoy/posts/``."""

    def __init__(self, home: Home) -> None:
        self._folder = home.role("envoy") / "posts"
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(self._folder)
        self.court = _court_id(home.role("envoy") / "court-id")
        """The id that distinguishes our posts from those of another court in the same workspace."""

    def read(self, message_id: str) -> SlackPost | None:
        found = read_object(self._path(message_id))
        names = {one.name for one in fields(SlackPost)}
        if not {"channel", "at"} <= found.keys():
            return None
        return SlackPost(**{"thread_ts": None, **{key: value for key, value in found.items() if key in names}})

    def write(self, message_id: str, post: SlackPost) -> None:
        write_json(self._path(message_id), asdict(post))

    def forget(self, message_id: str) -> None:
        """Delete the intent of a message that was certainly not posted."""
        self._path(message_id).unlink(missing_ok=True)
        sync_directory(self._folder)

    def prune(self, now: float) -> None:
        """Remove old files, by the day in the id of the message."""
        oldest = datetime.fromtimestamp(now - _POST_TTL_SECONDS - 86400, UTC).strftime("msg-%Y%m%d")
        for path in self._folder.glob("msg-*.json"):
            if path.name < oldest:
                path.unlink(missing_ok=True)

    def _path(self, message_id: str) -> Path:
        return self._folder / f"{check_name('message', message_id)}.json"


def _court_id(path: Path) -> str:
    """Return the unique id of this court, created on first use."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        write_atomic(path, f"{uuid4()}\n")
        return _court_id(path)


class ChannelNotFound(SlackError):
    """A message has no channel, or the app cannot see it."""


class ChannelDirectory:
    """Maps channel names to Slack's ids, and stores them in ``state/envoy/channels.json``."""

    def __init__(self, api: SlackApi, home: Home, default: str) -> None:
        self._api = api
        self._path = home.role("envoy") / "channels.json"
        self._default = default
        self._known: dict[str, str] = read_object(self._path)

    def key(self, name: str) -> str:
        """Return the id of a channel if it is known, otherwise its name."""
        wanted = name or self._default
        return self._known.get(wanted, wanted)

    async def resolve(self, name: str) -> str:
        """Return the id of a channel. Raises :class:`ChannelNotFound` if there is none of that name."""
        wanted = self.key(name)
        if not wanted:
            raise ChannelNotFound("the message names no channel: set slack.channel in config/envoy.yaml")
        found = await find_channel(self._api, wanted)
        if found != wanted:
            self._known[wanted] = found
            write_json(self._path, self._known)
        return found

    def forget(self, channel: str) -> None:
        """Forget the id of a channel that no longer exists, so that its name is looked up again."""
        self._known = {name: one for name, one in self._known.items() if one != channel}
        write_json(self._path, self._known)


async def find_channel(api: SlackApi, name: str) -> str:
    """Return the id of a channel, given its name, its id, or the id of a user (for a direct message)."""
    if _CHANNEL_ID.match(name):
        return name
    if user := _USER_ID.match(name):
        answer = await api.call("conversations.open", users=user[1])
        return str(answer["channel"]["id"])
    listed = api.pages(
        "conversations.list", "channels", types="public_channel,private_channel", exclude_archived="true", limit=1000
    )
    async for channel in listed:
        if channel.get("name") == name.removeprefix("#"):
            return str(channel["id"])
    raise ChannelNotFound(f"the app cannot see a channel {name}: invite the app, or configure the channel's id")


class UserDirectory:
    """The names of Slack users, for people to read; stored in ``state/envoy/users.json``."""

    def __init__(self, api: SlackApi, home: Home, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._known = EntryFile(home.role("envoy") / "users.json", durable=False)
        self._not_before = 0.0  # Slack was asked in vain: the scope is missing, or it is away

    async def name(self, user: str) -> str | None:
        """Return the name of a user, or None when it cannot be found."""
        now, entry = self._clock(), self._known.get(user) or {}
        fresh = 0 <= now - float(entry.get("at") or 0.0) < _NAME_TTL_SECONDS
        if not fresh and now >= self._not_before and _USER_ID.match(user):
            try:
                found = (await self._api.call("users.info", user=user)).get("user") or {}
            except (SlackError, TryLater) as error:
                unknown = isinstance(error, SlackRefused) and error.error == "user_not_found"
                self._not_before = self._not_before if unknown else now + _NAME_RETRY_SECONDS
                log.info("the names of Slack users are not known: %s", error)
            else:
                profile = found.get("profile") or {}
                name = profile.get("display_name") or found.get("real_name") or found.get("name")
                entry = {"name": one_line(str(name or user)), "at": now}
                self._known.put(user, entry)
        name = entry.get("name")
        return name if isinstance(name, str) and name != user else None


class ChannelRateLimiter:
    """Limits the rate of posts with a token bucket for each channel."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted
        self._blocked_until: dict[str, float] = {}  # until when nothing may be posted in a channel

    def acquire(self, channel: str) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        now = self._clock()
        wait = self._blocked_until.get(channel, 0.0) - now
        if wait > 0:
            return wait
        self._blocked_until.pop(channel, None)
        tokens, counted = self._buckets.get(channel, (_BURST_POSTS, now))
        tokens = min(_BURST_POSTS, tokens + max(now - counted, 0.0) * self._rate)
        taken = tokens >= 1.0
        self._buckets[channel] = (tokens - 1.0 if taken else tokens, now)
        return 0.0 if taken else (1.0 - tokens) / self._rate

    def block(self, channel: str, seconds: float) -> None:
        """Block a channel for some time."""
        self._blocked_until[channel] = max(self._blocked_until.get(channel, 0.0), self._clock() + seconds)


class BestEffortCalls:
    """Calls that may be lost: reactions, ephemeral messages, closing a question.

    They never delay a message. Each is tried once; only if Slack asks to wait is it tried again.
    """

    def __init__(self, api: SlackApi, clock: Callable[[], float], *, reactions: bool) -> None:
        self._api = api
        self._clock = clock
        self._reactions = reactions
        self._pending: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_MAX_PENDING_CALLS)
        self._not_before = 0.0

    def set_reaction(self, channel: str, ts: str, name: str) -> None:
        """Show a state as a reaction on a post, instead of the former one."""
        if not self._reactions:
            return
        self.add("reactions.add", channel=channel, timestamp=ts, name=name)
        if name != REACTION_SEEN:
            self.add("reactions.remove", channel=channel, timestamp=ts, name=REACTION_SEEN)

    def send_ephemeral(self, channel: str, user: str, text: str, thread_ts: str | None) -> None:
        """Post a text that only one user sees."""
        self.add("chat.postEphemeral", channel=channel, user=user, text=text, thread_ts=thread_ts)

    def add(self, method: str, **arguments: Any) -> None:
        """Add a call, to be made by :meth:`flush`."""
        self._pending.append((method, arguments))

    async def flush(self) -> None:
        """Make the pending calls, until Slack asks to wait."""
        while self._pending and self._clock() >= self._not_before:
            method, arguments = self._pending.popleft()
            try:
                await self._api.call(method, **arguments)
            except TryLater as wait:
                self._pending.appendleft((method, arguments))
                self._not_before = self._clock() + wait.after
            except SlackError as error:
                if not (isinstance(error, SlackRefused) and error.error in _HARMLESS_ERRORS):
                    log.warning("%s", error)


class SlackContext:
    """What the Slack sender and listener share."""

    def __init__(
        self,
        services: Services,
        config: SlackSection,
        system: SystemConfig,
        tokens: SlackTokens,
        *,
        api_seconds: float = 10.0,
    ) -> None:
        self.services = services
        self.clock = services.clock
        self.config = config
        self.trust = TrustFile(services.home, config.users)
        self.locale = system.locale
        self.base_url = system.repos.base_url
        self.zone = ZoneInfo(system.timezone)
        self.threads = ThreadStore(services.home)
        self.posts = PostStore(services.home)
        self.api = SlackApi(tokens, config.api_url, services.clock, api_seconds)
        self.identity = BotIdentity(self.api)
        self.channels = ChannelDirectory(self.api, services.home, config.channel or system.channel)
        self.users = UserDirectory(self.api, services.home, services.clock)
        self.rate_limiter = ChannelRateLimiter(config.posts_per_second, services.clock)
        self.best_effort = BestEffortCalls(self.api, services.clock, reactions=config.reactions)

    def judge(self, user: str, channel: str) -> TrustDecision:
        """Decide whether a user may give tasks and answer questions."""
        return self.trust.load().judge(People(Person("slack", user, channel=channel)))

    async def close_question(self, task_id: str, outcome: str) -> None:
        """Close a question: show its outcome, remove its buttons, and expect no answer any more."""
        entry = self.threads.awaiting.get(task_id)
        if entry is None:
            return
        text, blocks = closed_question(str(entry.get("text", "")), outcome)
        self.best_effort.add("chat.update", channel=entry["channel"], ts=entry["message_ts"], text=text, blocks=blocks)
        await self.best_effort.flush()
        if (post := self.posts.read(entry["msg_id"])) is not None:
            post.answered = True  # if its message has to be completed again, the question is not asked again
            self.posts.write(entry["msg_id"], post)
        self.threads.awaiting.remove([task_id])
