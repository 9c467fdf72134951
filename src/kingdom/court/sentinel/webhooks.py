"""Webhooks: verify the request, parse it, and leave a hint or emit events."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from kingdom.court.errors import CourtError, InvalidConfig, InvalidDocument
from kingdom.court.models import Event, timestamp
from kingdom.court.patterns import type_matches
from kingdom.court.queues import parse_document
from kingdom.court.sentinel.config import HOOK_NAME_PATTERN, SentinelConfigFile, read_secret
from kingdom.court.sentinel.events import EventEmitter, SeenEvents, make_event_id, parse_epoch
from kingdom.court.sentinel.github_api import SubjectRef, login_of, text_at
from kingdom.court.sentinel.github_events import (
    GitHubAccount,
    GitHubAction,
    comment_action,
    make_action_event,
    review_action,
)
from kingdom.court.sentinel.jira_events import JiraAccount as JiraAccount
from kingdom.court.sentinel.jira_events import extract_jira_events
from kingdom.court.sentinel.watcher import write_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import SentinelConfig, SourceSection


# Webhooks, as functions: check that one is genuine, and what it tells. :mod:`.reception` does what follows.
#
# Polling stays the truth: a source that is watched gets a hint to look at once (``hints.leave_hint``), and says itself
# what happened, under the ids it always has. Only where nothing is polled do the events of a webhook count; deliveries
# that are repeated have the same ids.


_DELIVERY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,99}\Z")
_UNFILTERED_ACTIONS: Final = {"reopened", "ready_for_review", "labeled"}


class WebhookRefused(CourtError):
    """A request that is not what it claims to be; ``status`` is what to answer."""

    code = "WEBHOOK_REFUSED"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ParsedWebhook:
    """What a webhook tells."""

    delivery: str
    """The same when it is delivered again."""
    hint: dict[str, Any] | None = None
    """What to look at, for a source that is polled."""
    events: list[Event] = field(default_factory=list)
    """What happened, for one that is not."""


def parse_github_webhook(
    headers: Mapping[str, str], body: bytes, *, secret: str, account: GitHubAccount
) -> ParsedWebhook:
    """What a webhook of GitHub tells; :class:`WebhookRefused` when its signature is not right."""
    named = _lower_keys(headers)
    _check_signature(named.get("x-hub-signature-256"), body, secret)
    delivery = _delivery_id(named.get("x-github-delivery"), body)
    payload, kind = _parse_body(body), named.get("x-github-event", "")
    repo = text_at(payload, "repository", "full_name")
    subject = payload.get("pull_request") or payload.get("issue")
    number = subject.get("number") if isinstance(subject, dict) else None
    if repo is None or not isinstance(subject, dict) or not isinstance(number, int):
        return ParsedWebhook(delivery)
    is_pr = "pull_request" in payload or "pull_request" in subject
    ref = SubjectRef(repo, number, is_pr)
    actions = [
        action for action in _webhook_actions(kind, payload, subject, account) if not account.is_own(action.actor)
    ]
    hint = {"repo": repo, "number": number, "is_pr": is_pr}
    return ParsedWebhook(delivery, hint, [make_action_event(ref, subject, action) for action in actions])


def parse_jira_webhook(headers: Mapping[str, str], body: bytes, *, secret: str, account: JiraAccount) -> ParsedWebhook:
    """What a webhook of Jira tells. Its secret signs it, or stands in the header ``X-Kingdom-Token``."""
    named = _lower_keys(headers)
    if "x-hub-signature" in named:
        _check_signature(named["x-hub-signature"], body, secret)
    else:
        check_token(named.get("x-kingdom-token"), secret)
    delivery = _delivery_id(named.get("x-atlassian-webhook-identifier"), body)
    payload = _parse_body(body)
    issue = payload.get("issue")
    if not isinstance(issue, dict) or not isinstance(issue.get("key"), str):
        return ParsedWebhook(delivery)
    events = extract_jira_events(_as_searched_issue(payload, issue), account, 1.0, url=_site_url(issue), repos={})
    return ParsedWebhook(delivery, {"key": issue["key"]}, events)


def parse_generic_webhook(
    name: str, headers: Mapping[str, str], body: bytes, *, token: str, now: float
) -> ParsedWebhook:
    """What any other program tells: an event (``type``, ``payload``), or a document that becomes the payload of one.

    The token stands in ``Authorization: Bearer`` or ``X-Kingdom-Token``. A request with the ``Idempotency-Key`` of a
    former one is the same event.
    """
    if not re.fullmatch(HOOK_NAME_PATTERN, name):
        raise WebhookRefused(f"no webhook {name!r:.80}: its name is made of a-z 0-9 _", 404)
    named = _lower_keys(headers)
    check_token(named.get("x-kingdom-token") or named.get("authorization", "").removeprefix("Bearer "), token)
    key = named.get("idempotency-key")
    if key is not None and not _DELIVERY_ID.match(key):
        raise WebhookRefused("Idempotency-Key: use A-Z a-z 0-9 . _ - and at most 100 characters", 400)
    delivery = key or f"{int(now * 1000)}-{hashlib.sha256(body).hexdigest()[:12]}"
    document = _parse_body(body)
    given = document if isinstance(document.get("type"), str) and "payload" in document else {"payload": document}
    defaults = {"type": f"webhook.{name}", "created_at": timestamp(now)}
    fixed = {"id": make_event_id("webhook", name, delivery), "source": f"webhook_{name}", "status": "pending"}
    try:
        event = parse_document(Event, {**defaults, **given, **fixed}, "the event")
    except InvalidDocument as error:
        raise WebhookRefused(str(error), 400) from None
    return ParsedWebhook(delivery, None, [event])


def check_token(given: str | None, expected: str) -> None:
    """Raise :class:`WebhookRefused` unless the token is right; how wrong it is takes no time to find out."""
    if not expected or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the token is missing or wrong", 401)


def _check_signature(given: str | None, body: bytes, secret: str) -> None:
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not secret or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the signature is missing or wrong: is the secret the same on both sides?", 401)


def _delivery_id(given: str | None, body: bytes) -> str:
    return given if given is not None and _DELIVERY_ID.match(given) else hashlib.sha256(body).hexdigest()[:32]


def _parse_body(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise WebhookRefused("the body is not JSON (choose application/json as the content type)", 400) from None
    if not isinstance(document, dict):
        raise WebhookRefused("the body must be a JSON object", 400)
    return document


def _lower_keys(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _webhook_actions(
    kind: str, payload: dict[str, Any], subject: dict[str, Any], account: GitHubAccount
) -> Iterator[GitHubAction]:
    """What was done. Comments and reviews have the ids they are polled with; other acts have none in a webhook."""
    what, sender = str(payload.get("action") or ""), login_of(payload, "sender")
    at = subject.get("updated_at")
    if kind == "issue_comment" and what == "created":
        yield comment_action(payload.get("comment") or {}, account)
    elif kind == "pull_request_review" and what == "submitted":
        if (review := review_action(payload.get("review") or {}, (), account)) is not None:
            yield review
    elif kind in ("pull_request", "issues"):
        action = _lifecycle_action(what, payload, subject, account)
        if action is not None:
            name, details = action
            key = name if name == "opened" else f"{name}-{at}"
            if name == "updated":
                key = f"updated-{(text_at(subject, 'head', 'sha') or '')[:16]}"
            if name == "opened" and account.mentioned_in(str(subject.get("body") or "")):
                name = "mentioned"
            yield GitHubAction(name, key, sender, parse_epoch(at), details)


def _lifecycle_action(
    what: str, payload: dict[str, Any], subject: dict[str, Any], account: GitHubAccount
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
    if what in _UNFILTERED_ACTIONS:
        return what, {"label": text_at(payload, "label", "name")} if what == "labeled" else {}
    return None


def _site_url(issue: dict[str, Any]) -> str:
    """Where the Jira is that a ticket comes from, by its link to itself; nothing if it has none."""
    parts = urlsplit(text_at(issue, "self") or "")
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _as_searched_issue(payload: dict[str, Any], issue: dict[str, Any]) -> dict[str, Any]:
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


# Where webhooks arrive: checked, made durable, and only then acknowledged. A web server calls it.
#
# A source that is watched gets a hint to look at once; where it is not, what the webhook tells becomes events.


MAX_BODY_BYTES: Final = 25 * 1024 * 1024
"""As much as GitHub sends at most. A web server need not read more."""
_WebhookParser = Callable[[Mapping[str, str], bytes], ParsedWebhook]
log = logging.getLogger("kingdom.court.sentinel")


@dataclass(frozen=True, slots=True)
class WebhookResult:
    """What became of a webhook."""

    delivery: str
    """The same when it is delivered again."""
    outcome: Literal["hint", "events", "ignored"]
    """The source is looked at, or events were made, or it told nothing."""
    events: list[str] = field(default_factory=list)
    """The ids of events that were not there before."""


class WebhookReceiver:
    """Takes webhooks for a court, in whatever process: what it leaves is on disk."""

    def __init__(self, services: Services, environment: Mapping[str, str] | None = None) -> None:
        self._services = services
        self._environment = environment
        self._config = SentinelConfigFile(services.home)
        self._emitter = EventEmitter(services, SeenEvents(services.home.role("sentinel") / "seen"))

    async def receive(self, source: str, headers: Mapping[str, str], body: bytes) -> WebhookResult:
        """Take one: ``source`` is ``github``, ``jira`` or the name of another one in ``config/sentinel.yaml``.

        ``body`` is what was sent, byte for byte. Everything is durable when this returns. Raises
        :class:`~kingdom.court.sentinel.webhooks.WebhookRefused`, whose ``status`` is what to answer.
        """
        if len(body) > MAX_BODY_BYTES:
            raise WebhookRefused(f"the body is larger than {MAX_BODY_BYTES:,} bytes", 413)
        config = self._config.load().config
        try:
            heard = await asyncio.to_thread(self._listen(source, config), headers, body)  # it may have megabytes
        except InvalidConfig as error:
            log.warning("the webhook %s cannot be taken: %s", source, error)
            raise WebhookRefused("this webhook is not set up completely: the log of the court says why", 503) from None
        watched = _watched_section(config, source)
        if watched is not None and watched.enabled:
            if heard.hint is None:
                return WebhookResult(heard.delivery, "ignored")
            await asyncio.to_thread(write_hint, self._services.home, source, heard.delivery, heard.hint)
            return WebhookResult(heard.delivery, "hint")
        events = [event for event in heard.events if not _is_ignored(event, watched)]
        if not events:
            return WebhookResult(heard.delivery, "ignored")
        return WebhookResult(heard.delivery, "events", await self._emitter.emit(events))

    def _listen(self, source: str, config: SentinelConfig) -> _WebhookParser:
        """How a webhook of this name is heard. Raises InvalidConfig when its secret is not there."""
        hooks = config.webhooks
        if source == "github" and hooks.github is not None:
            key = self._secret(hooks.github.secret_env, source)
            me = GitHubAccount.of(hooks.github.login)
            return lambda headers, body: parse_github_webhook(headers, body, secret=key, account=me)
        if source == "jira" and hooks.jira is not None:
            key = self._secret(hooks.jira.secret_env, source)
            mine = hooks.jira.account_id or ""
            account = JiraAccount(mine, frozenset({mine} - {""}))
            return lambda headers, body: parse_jira_webhook(headers, body, secret=key, account=account)
        if source in hooks.generic:
            token = self._secret(hooks.generic[source].token_env, source)
            now = self._services.clock()
            return lambda headers, body: parse_generic_webhook(source, headers, body, token=token, now=now)
        raise WebhookRefused(f"no webhook {source!r:.80} is set up: see webhooks in config/sentinel.yaml", 404)

    def _secret(self, variable: str, source: str) -> str:
        return read_secret(variable, f"webhooks: {source}", self._environment)


def _watched_section(config: SentinelConfig, source: str) -> SourceSection | None:
    """The section of a source that can also be watched."""
    return {"github": config.github, "jira": config.jira}.get(source)


def _is_ignored(event: Event, section: SourceSection | None) -> bool:
    return section is not None and any(type_matches(pattern, event.type) for pattern in section.ignore)
