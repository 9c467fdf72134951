"""From what was done to the event: the subject as it is, and the action."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.models import Event, timestamp
from kingdom.court.sentinel.github.subject import Ref, login_of, text_at
from kingdom.court.sentinel.kinds import priority_of
from kingdom.court.sentinel.texts import event_id, instant, plain

if TYPE_CHECKING:
    from kingdom.court.sentinel.github.actions import Action

SOURCE: Final = "github"
_NEED_RIGHTS: Final = ("review_requested", "assigned", "labeled", "merged")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def event_of(ref: Ref, subject: dict[str, Any], action: Action) -> Event:
    """The event of an action."""
    kind = f"github.{'pr' if ref.is_pr else 'issue'}.{action.what}"
    payload = {**_described(ref, subject), "action": action.what, "actor": action.actor, **action.details}
    if action.wrote:
        payload["author"] = action.actor
    if (association := _association(subject, action)) is not None:
        payload["actor_association"] = association
    return Event(
        id=event_id(SOURCE, ref.repo.lower().replace("/", "."), ref.number, action.name),
        type=kind,
        source=SOURCE,
        repo=ref.repo,
        payload=payload,
        priority=priority_of(kind),
        created_at=timestamp(action.at),  # type: ignore[arg-type]  # read from its text
    )


def event_of_notification(ref: Ref) -> Event:
    """The event of a notification whose subject has no number: a release, a discussion, a check."""
    thread = ref.notification or {}
    word = re.sub(r"[^a-z0-9_]", "_", _WORD.sub("_", text_at(thread, "subject", "type") or "unknown").lower())
    kind = f"github.notification.{word[:60]}"
    payload = {
        "title": plain(text_at(thread, "subject", "title"), 1000),
        "url": text_at(thread, "subject", "url") or text_at(thread, "repository", "html_url"),
        "reason": thread.get("reason"),
        "notification_id": ref.thread,
    }
    return Event(
        id=event_id(SOURCE, ref.thread, ref.updated_at.replace(":", "")),
        type=kind,
        source=SOURCE,
        repo=ref.repo,
        payload=payload,
        priority=priority_of(kind),
        created_at=timestamp(instant(ref.updated_at)),  # type: ignore[arg-type]
    )


def _association(subject: dict[str, Any], action: Action) -> str | None:
    """What the actor is to the repository; None when GitHub does not say.

    Entries of a timeline have no association. But of those that are not of the author himself, some can only be of
    somebody to whom the repository's owner has given rights.
    """
    comment = action.details.get("comment")
    if isinstance(comment, dict):
        return text_at(comment, "association")
    if action.actor == login_of(subject, "user"):
        return text_at(subject, "author_association")
    return "COLLABORATOR" if action.what in _NEED_RIGHTS else None


def _described(ref: Ref, subject: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "number": ref.number,
        "title": plain(subject.get("title"), 1000),
        "body": plain(subject.get("body")),
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
        told |= {
            "draft": bool(subject.get("draft")),
            "base": text_at(subject, "base", "ref"),
            "head": text_at(subject, "head", "ref"),
            "head_sha": text_at(subject, "head", "sha"),
            "head_repo": text_at(subject, "head", "repo", "full_name"),
        }
    return {name: value for name, value in told.items() if value is not None}
