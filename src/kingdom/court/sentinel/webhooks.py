"""Webhooks, as functions: check that one is genuine, and what it tells. :mod:`.reception` does what follows.

Polling stays the truth: a source that is watched gets a hint to look at once (``hints.leave_hint``), and says itself
what happened, under the ids it always has. Only where nothing is polled do the events of a webhook count; deliveries
that are repeated have the same ids.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kingdom.court.errors import CourtError, InvalidDocument
from kingdom.court.models import Event, timestamp
from kingdom.court.queues import read
from kingdom.court.sentinel.config import HOOK_NAME
from kingdom.court.sentinel.github.actions import Account, Action, comment_action, review_action
from kingdom.court.sentinel.github.events import event_of
from kingdom.court.sentinel.github.subject import Ref, login_of, text_at
from kingdom.court.sentinel.jira.changes import Account as JiraAccount
from kingdom.court.sentinel.jira.changes import events_of
from kingdom.court.sentinel.texts import event_id, instant

if TYPE_CHECKING:
    from collections.abc import Iterator

_DELIVERY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,99}\Z")
_PLAIN: Final = {"reopened", "ready_for_review", "labeled"}


class WebhookRefused(CourtError):
    """A request that is not what it claims to be; ``status`` is what to answer."""

    code = "WEBHOOK_REFUSED"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Heard:
    """What a webhook tells."""

    delivery: str
    """The same when it is delivered again."""
    hint: dict[str, Any] | None = None
    """What to look at, for a source that is polled."""
    events: list[Event] = field(default_factory=list)
    """What happened, for one that is not."""


def github_heard(headers: Mapping[str, str], body: bytes, *, secret: str, account: Account) -> Heard:
    """What a webhook of GitHub tells; :class:`WebhookRefused` when its signature is not right."""
    named = _lowered(headers)
    _check_signature(named.get("x-hub-signature-256"), body, secret)
    delivery = _delivery(named.get("x-github-delivery"), body)
    payload, kind = _document(body), named.get("x-github-event", "")
    repo = text_at(payload, "repository", "full_name")
    subject = payload.get("pull_request") or payload.get("issue")
    number = subject.get("number") if isinstance(subject, dict) else None
    if repo is None or not isinstance(subject, dict) or not isinstance(number, int):
        return Heard(delivery)
    is_pr = "pull_request" in payload or "pull_request" in subject
    ref = Ref(repo, number, is_pr)
    actions = [action for action in _actions(kind, payload, subject, account) if not account.is_own(action.actor)]
    hint = {"repo": repo, "number": number, "is_pr": is_pr}
    return Heard(delivery, hint, [event_of(ref, subject, action) for action in actions])


def jira_heard(headers: Mapping[str, str], body: bytes, *, secret: str, account: JiraAccount) -> Heard:
    """What a webhook of Jira tells. Its secret signs it, or stands in the header ``X-Kingdom-Token``."""
    named = _lowered(headers)
    if "x-hub-signature" in named:
        _check_signature(named["x-hub-signature"], body, secret)
    else:
        check_token(named.get("x-kingdom-token"), secret)
    delivery = _delivery(named.get("x-atlassian-webhook-identifier"), body)
    payload = _document(body)
    issue = payload.get("issue")
    if not isinstance(issue, dict) or not isinstance(issue.get("key"), str):
        return Heard(delivery)
    events = events_of(_as_read(payload, issue), account, 1.0, url=_site(issue), repos={})
    return Heard(delivery, {"key": issue["key"]}, events)


def generic_heard(name: str, headers: Mapping[str, str], body: bytes, *, token: str, now: float) -> Heard:
    """What any other program tells: an event (``type``, ``payload``), or a document that becomes the payload of one.

    The token stands in ``Authorization: Bearer`` or ``X-Kingdom-Token``. A request with the ``Idempotency-Key`` of a
    former one is the same event.
    """
    if not re.fullmatch(HOOK_NAME, name):
        raise WebhookRefused(f"no webhook {name!r:.80}: its name is made of a-z 0-9 _", 404)
    named = _lowered(headers)
    check_token(named.get("x-kingdom-token") or named.get("authorization", "").removeprefix("Bearer "), token)
    key = named.get("idempotency-key")
    if key is not None and not _DELIVERY.match(key):
        raise WebhookRefused("Idempotency-Key: use A-Z a-z 0-9 . _ - and at most 100 characters", 400)
    delivery = key or f"{int(now * 1000)}-{hashlib.sha256(body).hexdigest()[:12]}"
    document = _document(body)
    given = document if isinstance(document.get("type"), str) and "payload" in document else {"payload": document}
    defaults = {"type": f"webhook.{name}", "created_at": timestamp(now)}
    fixed = {"id": event_id("webhook", name, delivery), "source": f"webhook_{name}", "status": "pending"}
    try:
        event = read(Event, {**defaults, **given, **fixed}, "the event")
    except InvalidDocument as error:
        raise WebhookRefused(str(error), 400) from None
    return Heard(delivery, None, [event])


def check_token(given: str | None, expected: str) -> None:
    """Raise :class:`WebhookRefused` unless the token is right; how wrong it is takes no time to find out."""
    if not expected or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the token is missing or wrong", 401)


def _check_signature(given: str | None, body: bytes, secret: str) -> None:
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not secret or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the signature is missing or wrong: is the secret the same on both sides?", 401)


def _delivery(given: str | None, body: bytes) -> str:
    return given if given is not None and _DELIVERY.match(given) else hashlib.sha256(body).hexdigest()[:32]


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise WebhookRefused("the body is not JSON (choose application/json as the content type)", 400) from None
    if not isinstance(document, dict):
        raise WebhookRefused("the body must be a JSON object", 400)
    return document


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _actions(kind: str, payload: dict[str, Any], subject: dict[str, Any], account: Account) -> Iterator[Action]:
    """What was done. Comments and reviews have the ids they are polled with; other acts have none in a webhook."""
    what, sender = str(payload.get("action") or ""), login_of(payload, "sender")
    at = subject.get("updated_at")
    if kind == "issue_comment" and what == "created":
        yield comment_action(payload.get("comment") or {}, account)
    elif kind == "pull_request_review" and what == "submitted":
        if (review := review_action(payload.get("review") or {}, (), account)) is not None:
            yield review
    elif kind in ("pull_request", "issues"):
        action = _lifecycle(what, payload, subject, account)
        if action is not None:
            name, details = action
            key = name if name == "opened" else f"{name}-{at}"
            if name == "updated":
                key = f"updated-{(text_at(subject, 'head', 'sha') or '')[:16]}"
            if name == "opened" and account.mentioned_in(str(subject.get("body") or "")):
                name = "mentioned"
            yield Action(name, key, sender, instant(at), details)


def _lifecycle(
    what: str, payload: dict[str, Any], subject: dict[str, Any], account: Account
) -> tuple[str, dict[str, Any]] | None:
    reviewer, assignee = text_at(payload, "requested_reviewer", "login"), text_at(payload, "assignee", "login")
    if what == "review_requested":
        team = payload.get("requested_team")
        wanted = account.is_team(team) if isinstance(team, dict) else account.is_me(reviewer)
        return ("review_requested", {"reviewer": reviewer or text_at(team, "slug")}) if wanted else None
    if what == "assigned":
        return ("assigned", {"assignee": assignee}) if account.is_me(assignee) else None
    if what == "opened":
        asked = [*(subject.get("requested_reviewers") or []), *(subject.get("assignees") or [])]
        mine = account.login is not None and any(account.is_me(text_at(user, "login")) for user in asked)
        return None if mine and not account.for_anyone else ("opened", {})  # the request comes on its own
    if what == "synchronize":
        return "updated", {"previous_sha": payload.get("before")}
    if what == "closed":
        return ("merged" if subject.get("merged") else "closed"), {}
    if what in _PLAIN:
        return what, {"label": text_at(payload, "label", "name")} if what == "labeled" else {}
    return None


def _site(issue: dict[str, Any]) -> str:
    """Where the Jira is that a ticket comes from, by its link to itself; nothing if it has none."""
    parts = urlsplit(text_at(issue, "self") or "")
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _as_read(payload: dict[str, Any], issue: dict[str, Any]) -> dict[str, Any]:
    """The ticket of a webhook in the form it is read in, with this one change in its history."""
    found, stamp = issue.get("fields"), payload.get("timestamp")
    fields: dict[str, Any] = dict(found) if isinstance(found, dict) else {}
    at = timestamp(stamp / 1000) if isinstance(stamp, int | float) and stamp > 0 else fields.get("updated")
    comment, changelog, kind = payload.get("comment"), payload.get("changelog"), payload.get("webhookEvent")
    fields["comment"] = {"comments": [comment] if kind == "comment_created" and comment else []}
    histories = []
    if isinstance(changelog, dict) and kind == "jira:issue_updated":
        histories = [{**changelog, "created": at, "author": payload.get("user")}]
    if kind != "jira:issue_created":
        fields.pop("created", None)
    return {**issue, "fields": fields, "changelog": {"histories": histories}}
