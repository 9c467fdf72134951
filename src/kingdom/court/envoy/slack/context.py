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

from kingdom.base.files import read_json, sync_directory, write_atomic, write_json
from kingdom.court.envoy.port import TryLater
from kingdom.court.envoy.slack.api import BotIdentity, SlackApi, SlackError, SlackRefused
from kingdom.court.envoy.slack.payloads import closed_question
from kingdom.court.home import check_name
from kingdom.court.loop import remove_stale_temporaries
from kingdom.court.trust.policy import People, Person, TrustFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kingdom.court.config import SystemConfig
    from kingdom.court.envoy.config import SlackSection, SlackTokens
    from kingdom.court.home import Home
    from kingdom.court.loop import Services


# The envoy's state files: which thread belongs to which task, which questions are open, when the last report went out.
#
# Each is one JSON object with an entry for each task, for people to read; only the envoy writes them.


Entry = dict[str, Any]
_LATE_ANSWER_SECONDS: Final = 60.0  # seconds after an answer in which others may still think that the question is open


class EntryFile:
    """One of the files. Every change is on the disk when it returns; a power cut it outlives only if ``durable``."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self._entries: Mapping[str, Entry] = {}
        self._read: tuple[int, int, int] | None = None

    def all(self) -> Mapping[str, Entry]:
        """What stands in it now: not to be changed."""
        now = self._version()
        if now is None or now != self._read:
            found = read_json(self._path)
            entries = found if isinstance(found, dict) else {}
            self._entries = {key: entry for key, entry in entries.items() if isinstance(entry, dict)}
            self._read = now
        return self._entries

    def get(self, key: str) -> Entry | None:
        """One entry."""
        found = self.all().get(key)
        return None if found is None else dict(found)

    def put(self, key: str, entry: Entry) -> None:
        """Add an entry, or replace it."""
        entries = self.all()
        if entries.get(key) != entry:
            self._write({**entries, key: entry})

    def remove(self, keys: Iterable[str]) -> None:
        """Take entries out; the file stays."""
        entries = self.all()
        gone = entries.keys() & set(keys)
        if gone:
            self._write({key: entry for key, entry in entries.items() if key not in gone})

    def _write(self, entries: dict[str, Entry]) -> None:
        write_json(self._path, entries, durable=self._durable)
        self._entries, self._read = entries, self._version()

    def _version(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class ThreadStore:
    """All of them."""

    def __init__(self, home: Home) -> None:
        folder = home.role("envoy")
        folder.mkdir(parents=True, exist_ok=True)
        self.mappings = EntryFile(folder / "thread-mappings.json")
        """By the task that a thread was begun for: channel, thread_ts, event_id, created_at."""
        self.awaiting = EntryFile(folder / "awaiting-responses.json")
        """By the task that asks: channel, thread_ts, message_ts, msg_id, choices, deadline, created_at; and ``answer``,
        once it has one that is being passed on."""
        self.received = EntryFile(folder / "received.json", durable=False)
        """By event: the post of a person that it was made of (channel, ts), until it is dealt with."""
        self._report = folder / "report-sent.json"

    def asked_in(self, channel: str, thread_ts: str) -> str | None:
        """The task whose question is open in a thread."""
        for task, one in self.awaiting.all().items():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts) and not one.get("answer"):
                return task
        return None

    def answered_in(self, channel: str, thread_ts: str, answered_ts: str) -> None:
        """Note in the mapping of a thread when a question in it was answered last."""
        for task, one in self.mappings.all().items():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts):
                self.mappings.put(task, {**one, "answered_ts": answered_ts})

    def just_answered(self, channel: str, thread_ts: str, ts: str) -> bool:
        """Whether a reply comes so soon after another one's answer that it was most likely meant as one, too."""
        for one in self.mappings.all().values():
            if (one.get("channel"), one.get("thread_ts")) == (channel, thread_ts) and one.get("answered_ts"):
                return float(ts) - float(one["answered_ts"]) < _LATE_ANSWER_SECONDS
        return False

    def report_sent(self, date: str, message_id: str, sent_at: str) -> None:
        """Note which report was the last."""
        write_json(self._report, {"date": date, "msg_id": message_id, "sent_at": sent_at})


# What was meant to be posted, and what became of it: one small file for each message.
#
# It is written before the post goes out, and once more when all is done. So whoever finds it without a time stamp knows
# that the post may be there, and looks for it before posting again.


_POST_TTL_SECONDS: Final = 30 * 86400.0  # seconds: as long as a message that failed may be put back into the queue


@dataclass(slots=True)
class SlackPost:
    """A message on its way to Slack."""

    channel: str
    thread_ts: str | None
    at: float  # when it was first meant to go out
    ts: str | None = None  # under which Slack has it, as soon as that is known
    edits: str | None = None  # it is added to the post ``ts`` instead of being one of its own: the whole text then
    answered: bool = False  # the question in it was answered
    done: bool = False  # all that follows from it was done, too
    intents: list[str] = field(default_factory=list)  # the messages that are in the post


class PostStore:
    """The files below ``state/envoy/posts/``."""

    def __init__(self, home: Home) -> None:
        self._folder = home.role("envoy") / "posts"
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(self._folder)
        self.court = _court_id(home.role("envoy") / "court-id")
        """What tells our posts from those of another court in the same workspace."""

    def read(self, message_id: str) -> SlackPost | None:
        """What is known of a message."""
        found = read_json(self._path(message_id))
        names = {one.name for one in fields(SlackPost)}
        if not isinstance(found, dict) or not {"channel", "at"} <= found.keys():
            return None
        return SlackPost(**{"thread_ts": None, **{key: value for key, value in found.items() if key in names}})

    def write(self, message_id: str, post: SlackPost) -> None:
        """Note it, durably."""
        write_json(self._path(message_id), asdict(post))

    def forget(self, message_id: str) -> None:
        """It certainly did not go out."""
        self._path(message_id).unlink(missing_ok=True)
        sync_directory(self._folder)

    def prune(self, now: float) -> None:
        """Remove what is too old to matter, by the day in the id of its message."""
        oldest = datetime.fromtimestamp(now - _POST_TTL_SECONDS, UTC).strftime("msg-%Y%m%d")
        for path in self._folder.glob("msg-*.json"):
            if path.name < oldest:
                path.unlink(missing_ok=True)

    def _path(self, message_id: str) -> Path:
        return self._folder / f"{check_name('message', message_id)}.json"


def _court_id(path: Path) -> str:
    """A name that no other court has, made when it is first asked for."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        write_atomic(path, f"{uuid4()}\n")
        return _court_id(path)


# From the names of channels, as people write them, to the ids that Slack wants.


_CHANNEL_ID: Final = re.compile(r"[CGD][A-Z0-9]{2,30}\Z")
_USER_ID: Final = re.compile(r"@?([UW][A-Z0-9]{2,30})\Z")


class ChannelNotFound(SlackError):
    """Nobody knows where a message should go."""


class ChannelDirectory:
    """What is looked up once is kept in ``state/envoy/channels.json``."""

    def __init__(self, api: SlackApi, home: Home, default: str) -> None:
        self._api = api
        self._path = home.role("envoy") / "channels.json"
        self._default = default
        found = read_json(self._path)
        self._known: dict[str, str] = found if isinstance(found, dict) else {}

    def key(self, name: str) -> str:
        """The id of a channel if it is known, else its name."""
        wanted = name or self._default
        return self._known.get(wanted, wanted)

    async def resolve(self, name: str) -> str:
        """The id of a channel; raises :class:`NoChannel` when there is none of that name."""
        wanted = self.key(name)
        if not wanted:
            raise ChannelNotFound("the message names no channel, and none is set: slack.channel in config/envoy.yaml")
        found = await find_channel(self._api, wanted)
        if found != wanted:
            self._known[wanted] = found
            write_json(self._path, self._known)
        return found

    def forget(self, channel: str) -> None:
        """A channel that is not there any more: look again."""
        self._known = {name: one for name, one in self._known.items() if one != channel}
        write_json(self._path, self._known)


async def find_channel(api: SlackApi, name: str) -> str:
    """Ask Slack for the id of a channel, by its name, its id or the id of a person."""
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
    raise ChannelNotFound(f"the app sees no channel {name}: invite it there, or give the channel's id instead")


# How fast one may speak in a channel.


_BURST_POSTS: Final = 3.0  # posts in quick succession: Slack allows short bursts above its limit


class ChannelRateLimiter:
    """A bucket of tokens for each channel, filled at a steady rate."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted
        self._closed: dict[str, float] = {}  # until when nothing may be said there

    def take(self, channel: str) -> float:
        """Take a token; 0, or the seconds until there is one."""
        now = self._clock()
        closed = self._closed.get(channel, 0.0) - now
        if closed > 0:
            return closed
        self._closed.pop(channel, None)
        tokens, counted = self._buckets.get(channel, (_BURST_POSTS, now))
        tokens = min(_BURST_POSTS, tokens + max(now - counted, 0.0) * self._rate)
        taken = tokens >= 1.0
        self._buckets[channel] = (tokens - 1.0 if taken else tokens, now)
        return 0.0 if taken else (1.0 - tokens) / self._rate

    def close(self, channel: str, seconds: float) -> None:
        """Say nothing there for some time."""
        self._closed[channel] = max(self._closed.get(channel, 0.0), self._clock() + seconds)


# Small things that may be left undone: reactions, notes that only one person sees, a question shown as closed.
#
# None of them may hold up a message. They are tried once; only when Slack asks to wait, they wait.


REACTION_SEEN: Final = "eyes"
REACTION_DONE: Final = "white_check_mark"
REACTION_FAILED: Final = "x"
_MAX_PENDING_CALLS: Final = 500  # that wait; then the oldest is left undone
_HARMLESS_ERRORS: Final = ("already_reacted", "no_reaction", "message_not_found", "thread_not_found")
log = logging.getLogger("kingdom.court.envoy.slack")


class BestEffortCalls:
    """Calls that are owed."""

    def __init__(self, api: SlackApi, clock: Callable[[], float], *, reactions: bool) -> None:
        self._api = api
        self._clock = clock
        self._reactions = reactions
        self._pending: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_MAX_PENDING_CALLS)
        self._not_before = 0.0

    def set_reaction(self, channel: str, ts: str, name: str) -> None:
        """Let a post show a state; the one it showed before goes."""
        if not self._reactions:
            return
        self.add("reactions.add", channel=channel, timestamp=ts, name=name)
        if name != REACTION_SEEN:
            self.add("reactions.remove", channel=channel, timestamp=ts, name=REACTION_SEEN)

    def send_ephemeral(self, channel: str, user: str, text: str, thread_ts: str | None) -> None:
        """Tell one person something."""
        self.add("chat.postEphemeral", channel=channel, user=user, text=text, thread_ts=thread_ts)

    def add(self, method: str, **arguments: Any) -> None:
        """Note a call, to be made by :meth:`pay`."""
        self._pending.append((method, arguments))

    async def flush(self) -> None:
        """Make the calls that are owed, as far as Slack lets us."""
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


# What voice and ears share: the way to Slack, the state on the disk, and the words.


class SlackContext:
    """All of it."""

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
        self.zone = ZoneInfo(system.timezone)
        self.threads = ThreadStore(services.home)
        self.posts = PostStore(services.home)
        self.api = SlackApi(tokens, config.api_url, services.clock, api_seconds)
        self.identity = BotIdentity(self.api)
        self.channels = ChannelDirectory(self.api, services.home, config.channel or system.channel)
        self.rate_limiter = ChannelRateLimiter(config.posts_per_second, services.clock)
        self.best_effort = BestEffortCalls(self.api, services.clock, reactions=config.reactions)

    def allows(self, user: str, channel: str) -> bool:
        """Whether somebody may ask and answer."""
        return self.trust.load().judge(People(Person("slack", user, channel=channel))).permit is not None

    async def close_question(self, task_id: str, said: str) -> None:
        """A question is over: it shows what came of it, and is not awaited any more."""
        entry = self.threads.awaiting.get(task_id)
        if entry is None:
            return
        text, blocks = closed_question(str(entry.get("text", "")), said)
        self.best_effort.add("chat.update", channel=entry["channel"], ts=entry["message_ts"], text=text, blocks=blocks)
        await self.best_effort.flush()
        if (post := self.posts.read(entry["msg_id"])) is not None:
            post.answered = True  # should its message have to be said to its end once more, it is not asked again
            self.posts.write(entry["msg_id"], post)
        self.threads.awaiting.remove([task_id])
