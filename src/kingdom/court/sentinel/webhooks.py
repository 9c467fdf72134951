"""Webhooks: verify the request, parse it, and leave a hint or emit events.

Polling decides what happened: for a source that is polled, a webhook only leaves a hint to poll at once, and the source
reports what happened under the same ids as always. Only for a source that is not polled do webhooks become events; a
repeated delivery has the same ids.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from kingdom.court.errors import InvalidConfig, InvalidDocument
from kingdom.court.models import Event, timestamp
from kingdom.court.queues import find_document, parse_document
from kingdom.court.sentinel.config import HOOK_NAME_PATTERN, GitHubSection, SentinelConfigFile, read_secret
from kingdom.court.sentinel.events import EventEmitter, SeenIndex, make_event_id
from kingdom.court.sentinel.github_api import text_at
from kingdom.court.sentinel.github_events import GitHubAccount
from kingdom.court.sentinel.github_webhooks import parse_github_webhook
from kingdom.court.sentinel.jira_events import JiraAccount, extract_jira_events
from kingdom.court.sentinel.watcher import write_hint
from kingdom.court.sentinel.webhook_requests import (
    ParsedWebhook,
    WebhookRefused,
    bearer_token,
    check_signature,
    check_token,
    delivery_id,
    is_delivery_id,
    lower_keys,
    parse_body,
)
from kingdom.court.trust.text_hash import TEXT_HASH_FIELD

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import SentinelConfig, SourceSection


MAX_BODY_BYTES: Final = 25 * 1024 * 1024
"""The largest body that GitHub sends. A web server need not read more."""
log = logging.getLogger("kingdom.court.sentinel")


def parse_jira_webhook(headers: Mapping[str, str], body: bytes, *, secret: str, account: JiraAccount) -> ParsedWebhook:
    """Parse a webhook of Jira. The secret signs it, or is sent in the header ``X-Kingdom-Token``."""
    named = lower_keys(headers)
    if "x-hub-signature" in named:
        check_signature(named["x-hub-signature"], body, secret)
    else:
        check_token(named.get("x-kingdom-token"), secret)
    delivery = delivery_id(named.get("x-atlassian-webhook-identifier"), body)
    payload = parse_body(body)
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
    named = lower_keys(headers)
    check_token(bearer_token(named), token)
    key = named.get("idempotency-key")
    if key is not None and not is_delivery_id(key):
        raise WebhookRefused("Idempotency-Key: use A-Z a-z 0-9 . _ - and at most 100 characters", 400)
    delivery = key or f"{int(now * 1000)}-{hashlib.sha256(body).hexdigest()[:12]}"
    document = parse_body(body)
    given = document if isinstance(document.get("type"), str) and "payload" in document else {"payload": document}
    defaults = {"type": f"webhook.{name}", "created_at": timestamp(now)}
    fixed = {"id": make_event_id("webhook", name, delivery), "source": f"webhook_{name}", "status": "pending"}
    try:
        event = parse_document(Event, {**defaults, **given, **fixed}, "the event")
    except InvalidDocument as error:
        raise WebhookRefused(str(error), 400) from None
    return ParsedWebhook(delivery, None, [event])


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
        except (
            ArithmeticError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # a ValidationError is a ValueError
            log.warning("the webhook %s was refused: its body makes no sense: %r", source, error)
            raise WebhookRefused(f"the body does not have the form of a webhook of {source}", 400) from None
        watched = _watched_section(config, source)
        polled = watched is not None and watched.enabled
        if polled and parsed.hint is not None:
            await asyncio.to_thread(write_hint, self._services.home, source, parsed.delivery, parsed.hint)
            return WebhookResult(parsed.delivery, "hint")
        happened = [*([] if polled else parsed.events), *parsed.unpolled]
        events = [event for event in happened if watched is None or _is_wanted(watched, event)]
        if not events:
            return WebhookResult(parsed.delivery, "ignored")
        accepted = await self._emitter.emit(events)
        if not accepted and source in config.webhooks.generic:
            await self._check_repeated(events[0])
        return WebhookResult(parsed.delivery, "events", accepted)

    async def _check_repeated(self, event: Event) -> None:
        """Refuse another event under an ``Idempotency-Key`` that was used: it would be lost without a word."""
        stored = await find_document(self._services, event.id)
        if stored is None:  # it was removed long ago
            return
        payload = {name: value for name, value in event.payload.items() if name != TEXT_HASH_FIELD}
        before = dict(stored.document.get("payload") or {})
        before.pop(TEXT_HASH_FIELD, None)
        if (before, stored.document.get("type")) != (payload, event.type):
            raise WebhookRefused("this Idempotency-Key was used for another event: use a new key", 422)

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


def _is_wanted(section: SourceSection, event: Event) -> bool:
    if section.ignores(event.type):
        return False
    return not isinstance(section, GitHubSection) or event.repo is None or section.watches(event.repo)
