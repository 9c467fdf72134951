"""Turns the history of an issue or pull request into actions, and actions into events.

One act of one person is one action, with its most specific name. A comment that mentions us is a mention and not also a
comment; a pull request opened with us as the reviewer is a review request and not also an opening; a merge is not also
a closing. Each action has an id from GitHub, so it stays the same whenever and however often it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.models import Event, timestamp
from kingdom.court.pull_requests import is_marked
from kingdom.court.sentinel.events import clean_text, default_priority, make_event_id, parse_epoch
from kingdom.court.sentinel.github_api import SubjectRef, entry_time, login_of, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kingdom.court.sentinel.github_api import SubjectHistory


_OPENING_WINDOW_SECONDS: Final = 60.0  # requests this close to an opening belong to it
_MERGE_WINDOW_SECONDS: Final = 5.0  # a merge adds two timeline entries this close together
_AUTHORED_ACTIONS: Final = ("mentioned", "commented", "reviewed", "opened")  # the actor wrote the text
_UNFILTERED_ENTRIES: Final = {"closed", "merged", "reopened", "ready_for_review", "labeled"}
_PR_ONLY_ENTRIES: Final = {"merged", "ready_for_review"}
GITHUB: Final = "github"
_ASSIGNMENTS: Final = ("assigned", "unassigned")
_REVIEW_REQUESTS: Final = ("review_requested", "review_request_removed")
_COLLABORATOR_ACTIONS: Final = (*_REVIEW_REQUESTS, *_ASSIGNMENTS, "labeled", "merged")
_WORD_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class GitHubAccount:
    """The account that the sentinel listens for."""

    login: str | None
    own: frozenset[str] = frozenset()
    """Accounts whose actions do not become events, in lower case."""
    teams: frozenset[str] = frozenset()
    for_anyone: bool = False

    @classmethod
    def of(
        cls, login: str | None, own: Iterable[str] = (), teams: Iterable[str] = (), *, for_anyone: bool = False
    ) -> GitHubAccount:
        """Make an account from names in any case, teams with or without a leading @."""
        names = frozenset(name.lower() for name in (*own, *([login] if login else [])))
        return cls(login, names, frozenset(team.lower().lstrip("@") for team in teams), for_anyone)

    def made(self, action: GitHubAction) -> bool:
        """Return whether an action is the court's: by its account, or a text that it posted with another one."""
        comment = action.details.get("comment")
        posted = isinstance(comment, dict) and is_marked(str(comment.get("body")))
        return posted or action.actor.lower() in self.own

    def is_me(self, login: str | None) -> bool:
        """Return whether a request to this account is for us."""
        if self.for_anyone or self.login is None:
            return True
        return login is not None and login.lower() == self.login.lower()

    def is_team(self, team: Any) -> bool:
        """Return whether a request to this team is for us."""
        slug = text_at(team, "slug")
        return slug is not None and (
            self.for_anyone or any(name.rpartition("/")[2] == slug.lower() for name in self.teams)
        )

    def mentioned_in(self, text: str) -> bool:
        """Return whether a text mentions us, as ``@login`` or ``@org/team``."""
        names = [*([self.login] if self.login else []), *self.teams]
        return any(re.search(rf"(?<![\w`/@-])@{re.escape(name)}(?![\w/-])", text, re.IGNORECASE) for name in names)


@dataclass(frozen=True, slots=True)
class GitHubAction:
    """Something that somebody did to a subject."""

    what: str
    """The last word of the event's type."""
    name: str
    """Its id, unique within the subject."""
    actor: str
    at: float
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def wrote(self) -> bool:
        """Whether the actor wrote the text of the action."""
        return self.what in _AUTHORED_ACTIONS


def extract_actions(history: SubjectHistory, account: GitHubAccount) -> list[GitHubAction]:
    """Return the actions of others on a subject since ``history.ref.since``, in order."""
    since, found = history.ref.since, list[GitHubAction]()
    entries = [entry for entry in history.timeline if entry_time(entry) >= since]
    merged_at = [entry_time(entry) for entry in entries if entry.get("event") == "merged"]
    for entry in entries:
        kind, at = entry.get("event"), entry_time(entry)
        if kind == "closed" and any(abs(at - moment) <= _MERGE_WINDOW_SECONDS for moment in merged_at):
            continue
        action = _entry_action(entry, history, account, entries)
        if action is not None:
            found.append(action)
    found += [
        action for action in (_opening_action(history, account, found), _new_head_action(history)) if action is not None
    ]
    return sorted((action for action in found if not account.made(action)), key=lambda action: action.at)


def _entry_action(
    entry: dict[str, Any], history: SubjectHistory, account: GitHubAccount, entries: list[dict[str, Any]]
) -> GitHubAction | None:
    kind, identity, at, is_pr = entry.get("event"), entry.get("id"), entry_time(entry), history.ref.is_pr
    if not isinstance(identity, int | str):
        return None
    if kind == "commented":
        return comment_action(entry, account)
    if kind == "reviewed" and is_pr:
        comments = [comment for comment in history.review_comments if comment.get("pull_request_review_id") == identity]
        return review_action(entry, comments, account)
    if kind in _REVIEW_REQUESTS and is_pr:
        withdrawn = kind == "review_requested" and _is_withdrawn(entry, entries)
        if withdrawn or not _is_request_to_us(entry, account):
            return None
        return GitHubAction(str(kind), f"request-{identity}", _actor(entry), at, _requested_reviewer(entry))
    if kind in _ASSIGNMENTS:
        who = text_at(entry, "assignee", "login")
        return (
            GitHubAction(kind, f"{kind}-{identity}", _actor(entry), at, {"assignee": who})
            if account.is_me(who)
            else None
        )
    if kind in _UNFILTERED_ENTRIES and (is_pr or kind not in _PR_ONLY_ENTRIES):
        details = {"label": text_at(entry, "label", "name")} if kind == "labeled" else {}
        return GitHubAction(str(kind), f"{kind}-{identity}", _actor(entry), at, details)
    return None


def comment_action(comment: dict[str, Any], account: GitHubAccount) -> GitHubAction:
    """Return a mention if the comment mentions us, otherwise a comment."""
    fields = _comment_fields(comment)
    what = "mentioned" if account.mentioned_in(fields["body"]) else "commented"
    at = entry_time(comment)
    return GitHubAction(what, f"comment-{comment.get('id')}", fields["author"], at, {"comment": fields})


def line_comment_action(comment: dict[str, Any], account: GitHubAccount) -> GitHubAction:
    """Return a comment on a line of the diff as an action of its own."""
    action = comment_action(comment, account)
    return replace(action, name=f"review-{action.name}")


def review_action(
    review: dict[str, Any], comments: Iterable[dict[str, Any]], account: GitHubAccount
) -> GitHubAction | None:
    """Return a review with its comments on lines of the diff as one action; None if it is not submitted yet."""
    state = str(review.get("state") or "").lower()
    if state == "pending":
        return None
    fields, lines = _comment_fields(review), [_comment_fields(comment) for comment in comments]
    if account.mentioned_in("\n".join([fields["body"], *(line["body"] for line in lines)])):
        what = "mentioned"
    else:
        what = "reviewed" if state in ("approved", "changes_requested") else "commented"
    details = {"comment": fields, "review_state": state, "line_comments": lines}
    return GitHubAction(what, f"review-{review.get('id')}", fields["author"], entry_time(review), details)


def _opening_action(history: SubjectHistory, account: GitHubAccount, others: list[GitHubAction]) -> GitHubAction | None:
    """Return the opening, unless it came with a request to us: then the request is the action."""
    at = parse_epoch(history.subject.get("created_at"))
    if at < history.ref.since or at == 0.0:
        return None
    asked = [action for action in others if action.what in ("review_requested", "assigned")]
    if any(abs(action.at - at) <= _OPENING_WINDOW_SECONDS for action in asked):
        return None
    mentioned = account.mentioned_in(clean_text(history.subject.get("body")))
    return GitHubAction("mentioned" if mentioned else "opened", "opened", login_of(history.subject, "user"), at)


def _new_head_action(history: SubjectHistory) -> GitHubAction | None:
    if history.head_commit is None or history.sha is None:
        return None
    commit = history.head_commit
    committer = login_of(commit, "committer")
    # Commits made on GitHub's web pages have the committer "web-flow".
    actor = committer if committer not in ("ghost", "web-flow") else login_of(commit, "author")
    at, name = parse_epoch(history.subject.get("updated_at")), f"updated-{history.sha[:16]}"
    if (pushed := history.force_push) is not None:  # the head may return to an earlier commit
        name = f"{name}-{pushed.get('id')}"
        if history.is_old_head:
            actor = _actor(pushed)
    return GitHubAction("updated", name, actor, at, {"previous_sha": commit.get("previous_sha")})


def _actor(entry: dict[str, Any]) -> str:
    return login_of(entry, "actor", "review_requester", "user")


def _is_request_to_us(entry: dict[str, Any], account: GitHubAccount) -> bool:
    if isinstance(entry.get("requested_team"), dict):
        return account.is_team(entry["requested_team"])
    return account.is_me(text_at(entry, "requested_reviewer", "login"))


def _requested_reviewer(entry: dict[str, Any]) -> dict[str, Any]:
    reviewer, team = text_at(entry, "requested_reviewer", "login"), text_at(entry, "requested_team", "slug")
    return {"reviewer": reviewer} if reviewer else {"reviewer_team": team}


def _is_withdrawn(request: dict[str, Any], entries: list[dict[str, Any]]) -> bool:
    """Return whether a request was withdrawn before it was polled, and not repeated."""
    later = [
        entry for entry in _requests(entries, _requested_reviewer(request)) if entry_time(entry) >= entry_time(request)
    ]
    return bool(later) and later[-1].get("event") == "review_request_removed"


def _requests(entries: list[dict[str, Any]], asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        if entry.get("event") in _REVIEW_REQUESTS and _requested_reviewer(entry) == asked:
            yield entry


def _comment_fields(comment: dict[str, Any]) -> dict[str, Any]:
    fields = {
        "id": comment.get("id"),
        "author": login_of(comment, "user", "actor"),
        "association": comment.get("author_association"),
        "body": clean_text(comment.get("body")),
        "url": comment.get("html_url"),
        "at": comment.get("created_at") or comment.get("submitted_at"),
    }
    place = {name: comment[name] for name in ("path", "line") if comment.get(name) is not None}
    return {name: value for name, value in {**fields, **place}.items() if value is not None}


def make_action_event(ref: SubjectRef, subject: dict[str, Any], action: GitHubAction) -> Event:
    kind = f"github.{'pr' if ref.is_pr else 'issue'}.{action.what}"
    payload = {**_subject_fields(ref, subject), "action": action.what, "actor": action.actor, **action.details}
    if action.wrote:
        payload["author"] = action.actor
    if (association := _association(subject, action)) is not None:
        payload["actor_association"] = association
    return Event(
        id=make_event_id(GITHUB, ref.repo_id, ref.number, action.name),
        type=kind,
        source=GITHUB,
        repo=ref.repo,
        payload=payload,
        priority=default_priority(kind),
        created_at=timestamp(action.at),  # type: ignore[arg-type]  # read from its text
    )


def make_notification_event(ref: SubjectRef) -> Event:
    """Make the event of a notification whose subject has no number: a release, a discussion, a check."""
    thread = ref.notification or {}
    word = re.sub(r"[^a-z0-9_]", "_", _WORD_BOUNDARY.sub("_", text_at(thread, "subject", "type") or "unknown").lower())
    kind = f"github.notification.{word[:60]}"
    payload = {
        "title": clean_text(text_at(thread, "subject", "title"), 1000),
        "url": text_at(thread, "subject", "url") or text_at(thread, "repository", "html_url"),
        "reason": thread.get("reason"),
        "notification_id": ref.thread,
    }
    return Event(
        id=make_event_id(GITHUB, ref.thread, ref.updated_at.replace(":", "")),
        type=kind,
        source=GITHUB,
        repo=ref.repo,
        payload=payload,
        priority=default_priority(kind),
        created_at=timestamp(parse_epoch(ref.updated_at)),  # type: ignore[arg-type]
    )


def _association(subject: dict[str, Any], action: GitHubAction) -> str | None:
    """Return the actor's association with the repository; None if GitHub does not say.

    Timeline entries have no association. But some actions, if they are not the author's own, are only possible for
    somebody with rights on the repository.
    """
    comment = action.details.get("comment")
    if isinstance(comment, dict):
        return text_at(comment, "association")
    if action.actor == login_of(subject, "user"):
        return text_at(subject, "author_association")
    return "COLLABORATOR" if action.what in _COLLABORATOR_ACTIONS else None


def _subject_fields(ref: SubjectRef, subject: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "repo_id": ref.repo_id,
        "number": ref.number,
        "title": clean_text(subject.get("title"), 1000),
        "body": clean_text(subject.get("body")),
        "author": login_of(subject, "user"),
        "opened_by": login_of(subject, "user"),
        "association": subject.get("author_association"),
        "url": subject.get("html_url"),
        "state": "merged" if subject.get("merged") else subject.get("state"),
        "labels": [name for label in subject.get("labels") or [] if (name := text_at(label, "name"))],
        "assignees": [name for user in subject.get("assignees") or [] if (name := text_at(user, "login"))],
        "notification_id": ref.thread,
    }
    if ref.is_pr:
        fields |= {
            "draft": bool(subject.get("draft")),
            "base": text_at(subject, "base", "ref"),
            "head": text_at(subject, "head", "ref"),
            "head_sha": text_at(subject, "head", "sha"),
            "head_repo": text_at(subject, "head", "repo", "full_name"),
        }
    return {name: value for name, value in fields.items() if value is not None}
