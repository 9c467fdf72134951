"""Webhooks: verify the request, parse it, and leave a hint or emit events.

Polling decides what happened: for a source that is polled, a webhook only leaves a hint to poll at once, and the source
reports what happened under the same ids as always. Only for a source that is not polled do webhooks become events; a
repeated delivery has the same ids.
"""

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
from kingdom.court.queues import parse_document
from kingdom.court.sentinel.config import HOOK_NAME_PATTERN, SentinelConfigFile, read_secret
from kingdom.court.sentinel.events import EventEmitter, SeenIndex, make_event_id, parse_epoch
from kingdom.court.sentinel.github_api import SubjectRef, int_at, login_of, text_at
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


_DELIVERY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,99}\Z")
_UNFILTERED_ACTIONS: Final = {"reopened", "ready_for_review", "labeled"}
MAX_BODY_BYTES: Final = 25 * 1024 * 1024
"""The largest body that GitHub sends. A web server need not read more."""
log = logging.getLogger("kingdom.court.sentinel")


class WebhookRefused(CourtError):
    """A request that cannot be accepted; ``status`` is the HTTP status to answer with."""

    code = "WEBHOOK_REFUSED"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ParsedWebhook:
    """The content of a webhook."""

    delivery: str
    """Its id, which is the same when it is delivered again."""
    hint: dict[str, Any] | None = None
    """What to read, for a source that is polled."""
    events: list[Event] = field(default_factory=list)
    """What happened, for a source that is not polled."""


def parse_github_webhook(
    headers: Mapping[str, str], body: bytes, *, secret: str, account: GitHubAccount
) -> ParsedWebhook:
    """Parse a webhook of GitHub. Raises :class:`WebhookRefused` if its signature is wrong."""
    named = _lower_keys(headers)
    _check_signature(named.get("x-hub-signature-256"), body, secret)
    delivery = _delivery_id(named.get("x-github-delivery"), body)
    payload, kind = _parse_body(body), named.get("x-github-event", "")
    repo = text_at(payload, "repository", "full_name")
    subject = payload.get("pull_request") or payload.get("issue")
    number = subject.get("number") if isinstance(subject, dict) else None
    if (
        repo is None
        or int_at(payload, "repository", "id") is None
        or not isinstance(subject, dict)
        or not isinstance(number, int)
    ):
        return ParsedWebhook(delivery)
    is_pr = "pull_request" in payload or "pull_request" in subject
    repo_id = int_at(payload, "repository", "id")
    ref = SubjectRef(repo, number, is_pr, repo_id)
    actions = [
        action for action in _webhook_actions(kind, payload, subject, account) if not account.is_own(action.actor)
    ]
    hint = {"repo": repo, "repo_id": repo_id, "number": number, "is_pr": is_pr}
    return ParsedWebhook(delivery, hint, [make_action_event(ref, subject, action) for action in actions])


def parse_jira_webhook(headers: Mapping[str, str], body: bytes, *, secret: str, account: JiraAccount) -> ParsedWebhook:
    """Parse a webhook of Jira. The secret signs it, or is sent in the header ``X-Kingdom-Token``."""
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
    """Parse a webhook of any other program: an event (``type``, ``payload``), or a document that becomes a payload.

    The token is sent in ``Authorization: Bearer`` or ``X-Kingdom-Token``. Requests with the same ``Idempotency-Key``
    are one event.
    """
    if not re.fullmatch(HOOK_NAME_PATTERN, name):
        raise WebhookRefused(f"no webhook {name!r:.80}: names consist of a-z 0-9 _", 404)
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
    """Raise :class:`WebhookRefused` unless the token is right. The comparison takes constant time."""
    if not expected or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the token is missing or wrong", 401)


def _check_signature(given: str | None, body: bytes, secret: str) -> None:
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not secret or not hmac.compare_digest((given or "").encode(), expected.encode()):
        raise WebhookRefused("the signature is missing or wrong: both sides must use the same secret", 401)


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
    """Yield the actions of a webhook.

    Comments and reviews get the same ids as when they are polled. Other actions have no id in a webhook.
    """
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
        return None if mine and not account.for_anyone else ("opened", {})  # the request has a webhook of its own
    if what == "synchronize":
        return "updated", {"previous_sha": payload.get("before")}
    if what == "closed":
        return ("merged" if subject.get("merged") else "closed"), {}
    if what in _UNFILTERED_ACTIONS:
        return what, {"label": text_at(payload, "label", "name")} if what == "labeled" else {}
    return None


def _site_url(issue: dict[str, Any]) -> str:
    """Return the base URL of a ticket's Jira site, from the ticket's own link; "" if it has none."""
    parts = urlsplit(text_at(issue, "self") or "")
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _as_searched_issue(payload: dict[str, Any], issue: dict[str, Any]) -> dict[str, Any]:
    """Return a webhook's ticket in the form of a search result, with this one change as its history."""
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


_WebhookParser = Callable[[Mapping[str, str], bytes], ParsedWebhook]


@dataclass(frozen=True, slots=True)
class WebhookResult:
    """What a webhook led to."""

    delivery: str
    """Its id, which is the same when it is delivered again."""
    outcome: Literal["hint", "events", "ignored"]
    """The source is polled at once, events were emitted, or there was nothing to do."""
    events: list[str] = field(default_factory=list)
    """The ids of the new events."""


class WebhookReceiver:
    """Receives the webhooks of a court. It can run in any process, because its results are on disk."""

    def __init__(self, services: Services, environment: Mapping[str, str] | None = None) -> None:
        self._services = services
        self._environment = environment
        self._config = SentinelConfigFile(services.home)
        self._emitter = EventEmitter(services, SeenIndex(services.home.role("sentinel") / "seen"))

    async def receive(self, source: str, headers: Mapping[str, str], body: bytes) -> WebhookResult:
        """Receive a webhook. ``source`` is ``github``, ``jira`` or the name of a generic one in ``sentinel.yaml``.

        ``body`` must be the raw body. Everything is durable on return. Raises :class:`WebhookRefused`, whose ``status``
        is the HTTP status to answer with.
        """
        if len(body) > MAX_BODY_BYTES:
            raise WebhookRefused(f"the body is larger than {MAX_BODY_BYTES:,} bytes", 413)
        config = self._config.load().config
        try:
            # In a thread: the body may have many megabytes.
            parsed = await asyncio.to_thread(self._parser(source, config), headers, body)
        except InvalidConfig as error:
            log.warning("the webhook %s was refused: %s", source, error)
            raise WebhookRefused("this webhook is not fully configured: see the log of the court", 503) from None
        watched = _watched_section(config, source)
        if watched is not None and watched.enabled:
            if parsed.hint is None:
                return WebhookResult(parsed.delivery, "ignored")
            await asyncio.to_thread(write_hint, self._services.home, source, parsed.delivery, parsed.hint)
            return WebhookResult(parsed.delivery, "hint")
        events = [event for event in parsed.events if watched is None or not watched.ignores(event.type)]
        if not events:
            return WebhookResult(parsed.delivery, "ignored")
        return WebhookResult(parsed.delivery, "events", await self._emitter.emit(events))

    def _parser(self, source: str, config: SentinelConfig) -> _WebhookParser:
        """Return the parser of a webhook. Raises :class:`InvalidConfig` if its secret is not set."""
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
        raise WebhookRefused(f"no webhook {source!r:.80} is configured: see webhooks in config/sentinel.yaml", 404)

    def _secret(self, variable: str, source: str) -> str:
        return read_secret(variable, f"webhooks: {source}", self._environment)


def _watched_section(config: SentinelConfig, source: str) -> SourceSection | None:
    return {"github": config.github, "jira": config.jira}.get(source)
