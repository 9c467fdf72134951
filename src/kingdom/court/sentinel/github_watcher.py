"""The GitHub watcher: lists say what changed, each subject's history says what happened."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.github_api import (
    Repository,
    SubjectHistory,
    SubjectRef,
    connect_github,
    entry_time,
    fetch_account_name,
    fetch_history,
    fetch_login,
    fetch_repository,
    int_at,
    is_repo_name,
)
from kingdom.court.sentinel.github_checks import CheckedPull, OwnPullChecks
from kingdom.court.sentinel.github_events import (
    GITHUB,
    GitHubAccount,
    GitHubAction,
    extract_actions,
    make_action_event,
    make_notification_event,
)
from kingdom.court.sentinel.github_listing import ListedSubjects, NotificationList, RepositoryList
from kingdom.court.sentinel.github_unread import (
    UnreadSubject,
    describe_unread,
    lapsed_sign_on,
    sign_on_problem,
    unread_subjects,
)
from kingdom.court.sentinel.watcher import (
    CircuitOpen,
    FetchedBatch,
    Hints,
    SourceError,
    SourceGone,
    SourceNotFound,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
)

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.models import Event
    from kingdom.court.sentinel.config import GitHubSection


_BATCH_SIZE: Final = 10  # subjects whose events are stored together
_OVERLAP_SECONDS: Final = 600.0  # this much of the history of a subject is read again
_RECENT_SECONDS: Final = 120.0  # a notification this young may be ahead of its subject
_EXPLAINED_SECONDS: Final = 5.0  # at most this long between an action and the time of its notification
_MAX_EARLY_READS: Final = 2  # of a subject that does not show yet what its notification is about
_STRICT_TRIES: Final = 8  # after this many attempts a subject is read without the parts that cannot be read
_PASSING_ERRORS: Final = (SourceNotFound, SourceRefused, SourceUnavailable)
_MARK_PAUSE_SECONDS: Final = 3600.0  # after a notification could not be marked as read
_SCHEDULE_TOLERANCE_SECONDS: Final = 1.0  # a poll begins a moment after it was due
_SUBJECT_TTL_SECONDS: Final = 14 * 86400.0  # for unchanged subjects; shorter than the seen index
log = logging.getLogger("kingdom.court.sentinel")


class ReadSubject(NamedTuple):
    """A subject with its history and the actions in it."""

    ref: SubjectRef
    history: SubjectHistory | None
    actions: list[GitHubAction]


class GitHubWatcher:
    """Watches GitHub for one account."""

    name = GITHUB

    def __init__(self, services: Services, section: GitHubSection, token: str) -> None:
        self._clock = services.clock
        self._section = section
        self._client = connect_github(section, token, services.clock)
        self._checks = OwnPullChecks(self._client, section, services.clock)
        self._hints = Hints(services.home, GITHUB)
        self._account: GitHubAccount | None = None
        self._server_interval = 0.0  # the interval that the server asks for
        self._list_at = 0.0
        self._lists_read = 0
        self._listed: ListedSubjects | None = None
        self._unlisted: dict[str, str] = {}  # lists that could not be read, and why
        self._repositories: dict[str, Repository] = {}  # by their names, also former ones
        self._organizations: dict[str, str] = {}  # names by id
        self._withheld: Mapping[str, str] = {}  # organizations whose single sign-on is missing
        self._mark_after = 0.0  # no notification is marked as read before this time

    @property
    def interval(self) -> float:
        """The configured interval, or a longer one if the server asks for it."""
        return max(self._section.interval_seconds, self._server_interval)

    def urgent(self) -> bool:
        """Return whether a webhook left a hint."""
        return self._hints.any()

    def problems(self) -> Mapping[str, str]:
        """Return the lists that cannot be read, and the organizations that withhold theirs."""
        return {**self._unlisted, **self._withheld}

    async def close(self) -> None:
        await self._client.close()

    async def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[FetchedBatch]:
        """Read the lists, then each subject in them, the least recently updated first."""
        memory = dict(cursor)
        memory.setdefault("baseline", self._clock() - self._section.lookback_hours * 3600)
        self._server_interval = max(self._server_interval, float(memory.get("poll_interval") or 0.0))
        await self._load_account()
        listed = await self._read_lists(memory)
        refs = [await self._identified(ref) for ref in (*self._hinted_refs(memory), *self._due_again(memory))]
        refs += listed.refs
        todo = sorted(_group_by_subject(refs), key=lambda group: max(parse_epoch(ref.updated_at) for ref in group))
        batch = FetchedBatch([], memory)
        for start in range(0, len(todo), _BATCH_SIZE):
            batch = FetchedBatch([], memory)
            for group in todo[start : start + _BATCH_SIZE]:
                memory = await self._read_subject(group, memory, batch)
            if start + _BATCH_SIZE < len(todo):
                batch.cursor = memory
                yield batch
                listed.refs = [ref for group in todo[start + _BATCH_SIZE :] for ref in group if not ref.hint]
        # The lists' cursor is stored with their last batch of subjects: usually there is only one, so one write.
        batch.cursor = self._drop_stale_subjects({**memory, **listed.cursor})
        batch.done += listed.unread
        assert self._account is not None
        batch.items += await self._checks.read(self._account, float(memory["baseline"]))
        self._withheld = {**describe_unread(unread_subjects(batch.cursor)), **await self._withheld_lists(batch.cursor)}
        yield batch
        self._listed = None

    def parse(self, batch: FetchedBatch) -> list[Event]:
        events: list[Event] = []
        for item in batch.items:
            try:
                events += _make_events(item)
            except (AttributeError, TypeError, ValueError) as error:  # a ValidationError is one
                log.warning("github: skipping %s, which makes no sense: %s", item.ref.label, error)
        return [event for event in events if not self._section.ignores(event.type)]

    async def post_emit(self, batch: FetchedBatch) -> None:
        """Mark notifications as read, and remove the hints."""
        for done in batch.done:
            if done.startswith("hint "):
                self._hints.remove(done.removeprefix("hint "))
            elif self._section.mark_read and self._clock() >= self._mark_after:
                await self._mark_read(done)

    async def _load_account(self) -> None:
        if self._account is not None:
            return
        section = self._section
        login = section.login or await fetch_login(self._client)
        if login is None and section.notifications:
            raise SourceRefused("github: the token belongs to no account and has no notifications: set github.login")
        own = [*section.own_accounts, *([login] if login else [])]
        self._account = GitHubAccount.of(login, own, section.teams, for_anyone=section.for_anyone)

    async def _read_lists(self, memory: dict[str, Any]) -> ListedSubjects:
        """Read all lists if they are due; otherwise return what an interrupted poll left of them.

        A hint or a retry does not make them due: the server limits how often they may be read. Each list stands alone:
        one that cannot be read is a problem of its own, and the others are read.
        """
        now = self._clock()
        due = self._list_at - _SCHEDULE_TOLERANCE_SECONDS
        if self._list_at - self.interval <= now < due:  # if now is even earlier, the clock was set back
            return self._listed or ListedSubjects([], {})
        full = self._lists_read % self._section.full_read_every == 0
        found, repos, failed = ListedSubjects([], {}), dict(memory.get("repos") or {}), dict[str, SourceError]()
        if self._section.notifications:
            try:
                found = await self._list_notifications(memory, full=full)
            except (SourceRefused, SourceNotFound, SourceUnavailable) as error:
                failed["notifications"] = _alone(error)
        for name in self._section.repos:
            try:
                found.refs += await self._list_repo(name, repos, memory, full=full)
            except (SourceRefused, SourceNotFound, SourceUnavailable) as error:
                failed[name] = _alone(error)
                repos.setdefault(name, {"newest": self._start(memory)})  # from here it is read when it can be
        self._unlisted = {}
        if len(failed) == len(self._section.repos) + self._section.notifications:
            raise next(iter(failed.values()))
        if repos:
            found.cursor["repos"] = repos
        self._unlisted = {name: str(error) for name, error in failed.items()}
        self._list_at = now + self.interval
        self._lists_read += 1
        self._listed = found
        return found

    async def _list_notifications(self, memory: dict[str, Any], *, full: bool) -> ListedSubjects:
        waiting = {item.ref.thread for item in unread_subjects(memory).values()}
        inbox = NotificationList(self._client, self._section, memory.get("inbox") or {}, memory["baseline"], full=full)
        found = await inbox.list(waiting)
        self._server_interval = inbox.poll_interval or self._server_interval
        found.cursor = {"inbox": found.cursor, "poll_interval": self._server_interval}
        return found

    async def _list_repo(
        self, name: str, repos: dict[str, Any], memory: Mapping[str, Any], *, full: bool
    ) -> list[SubjectRef]:
        """List one repository, and store its cursor in ``repos`` under the id of the repository."""
        try:
            repo = await self._repository(name, refresh=full)
            known = next((repos[key] for key in (str(repo.id), name) if key in repos), None)
            cursor = known or {"newest": self._start(memory)}
            listed = await RepositoryList(
                repo, self._client, self._section, cursor, memory["baseline"], full=full
            ).list()
        except SourceNotFound:
            raise SourceRefused(
                f"github: {name} does not exist, or the token cannot read it: see github.repos"
            ) from None
        except SourceRefused as error:
            if (lapsed := lapsed_sign_on(error, name)) is not None:
                raise SourceRefused(f"{sign_on_problem(*lapsed)} (for {name})") from None
            raise
        repos.pop(name, None)
        repos[str(repo.id)] = listed.cursor
        return listed.refs

    def _start(self, memory: Mapping[str, Any]) -> float:
        """Return where reading a repository starts that was not read before."""
        return max(self._clock() - self._section.lookback_hours * 3600, float(memory["baseline"]))

    async def _repository(self, name: str, *, refresh: bool = False) -> Repository:
        """Return the repository with this name. It may have another name by now: then that is reported once."""
        known = self._repositories.get(name.lower())
        if known is None or refresh:
            found = await fetch_repository(self._client, name)
            if found != known and found.name.lower() != name.lower():
                log.warning("github: %s is called %s now: change github.repos", name, found.name)
            self._repositories[name.lower()] = known = found
        return known

    async def _identified(self, ref: SubjectRef) -> SubjectRef:
        """Return the ref with the id of its repository, as far as the server tells it."""
        if ref.number is None or ref.repo_id is not None:
            return ref
        with contextlib.suppress(*_PASSING_ERRORS):
            return replace(ref, repo_id=(await self._repository(ref.repo)).id)
        return ref

    async def _withheld_lists(self, memory: Mapping[str, Any]) -> dict[str, str]:
        """Return the organizations that the notifications leave out, each with a sentence."""
        found = {}
        for identity in (memory.get("inbox") or {}).get("withheld") or []:
            name = self._organizations.get(identity) or await fetch_account_name(self._client, identity)
            if name is not None:
                self._organizations[identity] = name
            name = name or f"with the id {identity}"
            found[f"single sign-on of {name}"] = sign_on_problem(name)
        return found

    def _due_again(self, memory: Mapping[str, Any]) -> list[SubjectRef]:
        now = self._clock()
        return [item.ref for item in unread_subjects(memory).values() if item.due <= now]

    def _hinted_refs(self, memory: Mapping[str, Any]) -> list[SubjectRef]:
        found = []
        floor = max(self._clock() - _OVERLAP_SECONDS, memory["baseline"])
        for name, hint in self._hints.read().items():
            match hint:
                case {"repo": repo, "number": int(number), "is_pr": bool(is_pr)} if is_repo_name(repo):
                    repo_id = int_at(hint, "repo_id")
                    if not self._watches(repo, repo_id):
                        self._hints.remove(name)
                        continue
                    found.append(SubjectRef(repo, number, is_pr, repo_id, hint=name, since=floor))
                case _:
                    self._hints.remove(name)
        return found

    def _watches(self, repo: str, repo_id: int | None) -> bool:
        """Return whether a repository is watched, also if it is listed under a name that it had before."""
        listed = (self._repositories.get(name.lower()) for name in self._section.repos)
        return self._section.watches(repo) or any(found is not None and found.id == repo_id for found in listed)

    async def _read_subject(
        self, group: list[SubjectRef], memory: dict[str, Any], batch: FetchedBatch
    ) -> dict[str, Any]:
        """Read one subject into the batch, and return the new cursor."""
        ref, now = group[0], self._clock()
        done = [other.thread for other in group if other.thread] + [
            f"hint {other.hint}" for other in group if other.hint
        ]
        if ref.number is None:
            batch.items.append(ReadSubject(ref, None, []))
            batch.done += done
            return memory
        subjects, again = dict(memory.get("subjects") or {}), dict(memory.get("again") or {})
        known: dict[str, Any] = next((subjects.pop(key) for key in ref.keys if key in subjects), {})
        before = next((found for key in ref.keys if (found := unread_subjects(memory).get(key))), None)
        again = {key: entry for key, entry in again.items() if key not in ref.keys}
        since = min(other.since for other in group)
        if before is not None:
            since = min(since, before.ref.since)
            done += [before.ref.thread] if before.ref.thread and before.ref.thread not in done else []
        if known:
            since = min(since, float(known["at"]) - _OVERLAP_SECONDS)
        thread = ref.thread or (before.ref.thread if before else None)
        ref = replace(ref, since=max(since, memory["baseline"]), thread=thread)
        waiting = UnreadSubject(ref, 0) if before is None else replace(before, ref=ref)
        assert self._account is not None
        try:
            history = await fetch_history(self._client, ref, known.get("sha"), complete=waiting.tries < _STRICT_TRIES)
            actions = extract_actions(history, self._account)
        except (CircuitOpen, SourceUnauthorized):
            raise
        except SourceGone as error:
            log.info("github: skipping %s, which was deleted: %s", ref.label, error)
            batch.done += done
            return {**memory, "again": again}
        except (*_PASSING_ERRORS, AttributeError, TypeError, ValueError) as error:
            waiting = waiting.failed_again(error, now)
            if waiting.hopeless(now):
                log.warning("github: giving up on %s after %d attempts to read it: %s", ref.label, waiting.tries, error)
                batch.done += done
                return {**memory, "again": again}
            if waiting.tries == 1:
                log.warning("github: %s cannot be read now, and is read again later: %s", ref.label, error)
            again[ref.key] = waiting.to_entry()
            batch.done += [name for name in done if name.startswith("hint ")]
            return {**memory, "again": again}
        batch.items.append(ReadSubject(history.ref, history, actions))
        touched = max(parse_epoch(other.updated_at) for other in group)
        subjects[ref.key] = {"at": _read_until(history), "sha": history.sha}
        if touched > now - _RECENT_SECONDS and not _is_explained(history, touched) and waiting.early < _MAX_EARLY_READS:
            # The notification is ahead of its subject.
            again[ref.key] = UnreadSubject(ref, 0, early=waiting.early + 1).to_entry()
            done = [name for name in done if name.startswith("hint ")]
        batch.done += done
        return {**memory, "subjects": subjects, "again": again}

    async def _mark_read(self, thread: str) -> None:
        try:
            await self._client.patch(f"/notifications/threads/{thread}")
        except SourceNotFound:
            return
        except SourceRefused as error:
            self._mark_after = self._clock() + _MARK_PAUSE_SECONDS
            log.warning("github: a notification may not be marked as read; the next attempt is in an hour: %s", error)

    def _drop_stale_subjects(self, memory: dict[str, Any]) -> dict[str, Any]:
        """Drop subjects that were not updated for a long time."""
        subjects = memory.get("subjects") or {}
        old = self._clock() - _SUBJECT_TTL_SECONDS
        if any(known["at"] < old for known in subjects.values()):
            memory["subjects"] = {key: known for key, known in subjects.items() if known["at"] >= old}
        return memory


def _make_events(item: ReadSubject | CheckedPull) -> list[Event]:
    if isinstance(item, CheckedPull):
        return [make_action_event(*item)]
    if item.history is None:
        return [make_notification_event(item.ref)]
    return [make_action_event(item.ref, item.history.subject, action) for action in item.actions]


def _group_by_subject(refs: Iterable[SubjectRef]) -> list[list[SubjectRef]]:
    """Group the refs by subject; refs with a notification come first."""
    groups: dict[str, list[SubjectRef]] = {}
    for ref in refs:
        groups.setdefault(ref.key, []).append(ref)
    return [sorted(group, key=lambda ref: ref.thread is None) for group in groups.values()]


def _read_until(history: SubjectHistory) -> float:
    """Return the time, by the server's clock, up to which everything was read."""
    return max([parse_epoch(history.subject.get("updated_at")), *(entry_time(entry) for entry in history.timeline)])


def _is_explained(history: SubjectHistory, touched: float) -> bool:
    """Return whether the history has an entry that a notification of that time may be about."""
    times = [parse_epoch(history.subject.get("created_at")), *(entry_time(entry) for entry in history.timeline)]
    return history.head_commit is not None or max(times) >= touched - _EXPLAINED_SECONDS


def _alone(error: SourceError) -> SourceError:
    """Return an error that concerns one list only. Raises it if it concerns the whole source."""
    if isinstance(error, CircuitOpen | SourceUnauthorized):
        raise error
    return error
