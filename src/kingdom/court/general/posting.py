"""Post on issues, pull requests and tickets, once: at once, or later when their service is away.

A reply that waits is a file, ``state/<general>/replies/<task>-<name>.json``. It is tried again less and less often, by
this process or the next one, until it is posted, refused, or too old to be of use. What is posted twice is found by its
mark, so that the file may be removed too late.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.backoff import backoff
from kingdom.base.files import read_object, remove_abandoned, write_atomic, write_json
from kingdom.bus import BusError
from kingdom.court.errors import CourtError
from kingdom.court.home import named_path
from kingdom.court.machines.exchange import publish_file
from kingdom.court.models import timestamp
from kingdom.court.queues import is_answered, is_cancelled
from kingdom.gitops import GitError
from kingdom.gitops.pull_requests import WantedComment
from kingdom.gitops.remotes import is_outage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from kingdom.court.general.workspace import Workspace
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

    Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

REPLY: Final = "reply"  # names of replies: to a result
STOPPED: Final = "stopped"
KEPT_SECONDS: Final = 86400.0  # in which a reply is tried again
KEPT_QUESTION_SECONDS: Final = 7 * 86400.0  # likewise, while the question is open
_TIMEOUT_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = (30.0, 900.0)  # before it is tried again for the first time, and at most
_ERRORS: Final = (GitError, CourtError, TimeoutError)
log = logging.getLogger("kingdom.court")


@dataclass(frozen=True, slots=True)
class Reply:
    """A comment on an issue or pull request (``url`` of the repository, ``number``) or on a ticket."""

    task_id: str
    name: str
    text: str
    mark: str  # part of the text
    until: float  # when nobody needs it any more
    url: str | None = None
    number: int | None = None
    ticket: str | None = None
    asks: bool = False  # the question of its task

    @property
    def about(self) -> str:
        """Where it is posted, for the log."""
        return self.ticket or f"{self.url}#{self.number}"


def keep_reply(home: Home, general: str, reply: Reply) -> None:
    """Have a reply posted by its general, soon."""
    path = _path(home, general, reply.task_id, reply.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(reply))


class PendingReplies:
    """The replies of one general."""

    def __init__(
        self,
        services: Services,
        general: str,
        workspace: Workspace,
        monotonic: Callable[[], float],
        machine: str | None,
    ) -> None:
        self._services = services
        self._home = services.home
        self._general = general
        self._workspace = workspace
        self._monotonic = monotonic
        self._machine = machine
        self._running: dict[str, asyncio.Task[None]] = {}  # by the name of the file
        self._tries: dict[str, tuple[int, float]] = {}  # their number, and when the next one is due
        self._first: dict[str, asyncio.Task[None]] = {}  # what is posted before a reply, by task

    async def post(self, reply: Reply) -> str | None:
        """Post a reply; return when it was posted. One whose service is away is kept for later."""
        try:
            return await self._post(reply)
        except _ERRORS as error:
            later = _is_away(error)
            if later:
                keep_reply(self._home, self._general, reply)
                self._count_try(_path(self._home, self._general, reply.task_id, reply.name).name)
            self._warn(reply, error, "is posted later" if later else "was not posted")
            return None

    def sweep(self) -> None:
        """Remove what killed processes left unfinished."""
        with contextlib.suppress(FileNotFoundError):
            remove_abandoned(str(self._home.role(self._general) / _FOLDER))

    def drop(self, task_id: str, name: str) -> None:
        """Do not post a reply any more."""
        self._remove(_path(self._home, self._general, task_id, name))

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._tries.pop(path.name, None)

    def begin_with(self, task_id: str, work: asyncio.Task[None]) -> None:
        """Let the later replies of a task wait for some work."""
        self._first[task_id] = work
        work.add_done_callback(lambda _: self._first.pop(task_id, None))

    def start_due(self, start: Start) -> None:
        """Start to post the replies that are due."""
        now = self._monotonic()
        for path in sorted((self._home.role(self._general) / _FOLDER).glob("task-*.json")):
            name = path.name
            if name not in self._running and now >= self._tries.get(name, (0, 0.0))[1]:
                self._running[name] = running = start(self._try_again(path))
                running.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, _: asyncio.Task[None]) -> None:
        del self._running[name]

    async def _try_again(self, path: Path) -> None:
        try:
            reply = Reply(**read_object(path))
        except TypeError:
            log.warning("%s: %s is not a reply, and is removed", self._general, path)
            self._remove(path)
            return
        if (first := self._first.get(reply.task_id)) is not None:
            await asyncio.wait([first])
        try:
            if self._services.clock() < reply.until and await self._is_needed(reply):
                posted = await self._post(reply)
                if reply.asks and posted is not None:
                    await self._note_asked(reply.task_id, posted)
        except (*_ERRORS, BusError) as error:
            if isinstance(error, BusError) or _is_away(error):
                self._count_try(path.name)
                log.info("%s: the reply to %s is still not posted: %s", self._general, reply.about, error)
                return
            self._warn(reply, error, "was not posted")
        self._remove(path)

    async def _post(self, reply: Reply) -> str | None:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            if reply.ticket is not None:
                from kingdom.court.general.jira_replies import comment_on_ticket  # the client takes a while to load

                return await comment_on_ticket(self._home, reply.ticket, reply.text, reply.mark)
            if reply.url is None or reply.number is None:
                return None
            requests = await self._workspace.pull_requests(reply.url)
            posted = await requests.comment(reply.number, WantedComment(reply.text, reply.mark))
            return posted.at or timestamp(self._services.clock())

    async def _is_needed(self, reply: Reply) -> bool:
        """Whether a reply still says something: a joined machine sees no answers, only the task that goes on."""
        if not reply.asks:
            return True
        services, task_id = self._services, reply.task_id
        return not await is_answered(services, task_id) and not await is_cancelled(services, task_id)

    async def _note_asked(self, task_id: str, posted: str) -> None:
        """Let the king know that a question was posted after all: a comment since then is its answer."""
        path = self._home.asked(task_id)
        write_atomic(path, posted)
        if self._machine is not None:
            name = path.relative_to(self._home.root).as_posix()
            await publish_file(self._services.bus, self._machine, name, posted.encode())

    def _count_try(self, name: str) -> None:
        tries = self._tries.get(name, (0, 0.0))[0]
        self._tries[name] = tries + 1, self._monotonic() + backoff(tries, *_PAUSE_SECONDS)

    def _warn(self, reply: Reply, error: Exception, what: str) -> None:
        log.warning("%s: the reply to %s %s: %s", self._general, reply.about, what, error)


_FOLDER: Final = "replies"


def _path(home: Home, general: str, task_id: str, name: str) -> Path:
    return named_path(home.role(general) / _FOLDER, "task", task_id, f"-{name}.json")


def _is_away(error: Exception) -> bool:
    """Whether a service could not be reached, or asks to wait; not that it refused."""
    if isinstance(error, GitError):
        return is_outage(error)
    if isinstance(error, CourtError):
        from kingdom.court.sentinel.watcher import SourceBusy, SourceUnavailable

        return isinstance(error, (SourceBusy, SourceUnavailable))
    return isinstance(error, TimeoutError)
