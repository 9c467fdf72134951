"""Where webhooks arrive: checked, made durable, and only then acknowledged. A web server calls it.

A source that is watched gets a hint to look at once; where it is not, what the webhook tells becomes events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from kingdom.court.errors import InvalidConfig
from kingdom.court.king.routing import type_matches
from kingdom.court.sentinel.config import ConfigFile, secret
from kingdom.court.sentinel.emitting import Emitter
from kingdom.court.sentinel.github.actions import Account
from kingdom.court.sentinel.hints import leave_hint
from kingdom.court.sentinel.jira.changes import Account as JiraAccount
from kingdom.court.sentinel.seen import Seen
from kingdom.court.sentinel.webhooks import Heard, WebhookRefused, generic_heard, github_heard, jira_heard

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.models import Event
    from kingdom.court.sentinel.config import SentinelConfig, SourceSection

MAX_BODY_BYTES: Final = 25 * 1024 * 1024
"""As much as GitHub sends at most. A web server need not read more."""
_Listen = Callable[[Mapping[str, str], bytes], Heard]
log = logging.getLogger("kingdom.court.sentinel")


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a webhook."""

    delivery: str
    """The same when it is delivered again."""
    outcome: Literal["hint", "events", "ignored"]
    """The source is looked at, or events were made, or it told nothing."""
    events: list[str] = field(default_factory=list)
    """The ids of events that were not there before."""


class Reception:
    """Takes webhooks for a court, in whatever process: what it leaves is on disk."""

    def __init__(self, services: Services, environment: Mapping[str, str] | None = None) -> None:
        self._services = services
        self._environment = environment
        self._config = ConfigFile(services.home)
        self._emitter = Emitter(services, Seen(services.home.role("sentinel") / "seen"))

    async def receive(self, source: str, headers: Mapping[str, str], body: bytes) -> Received:
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
        watched = _section(config, source)
        if watched is not None and watched.enabled:
            if heard.hint is None:
                return Received(heard.delivery, "ignored")
            await asyncio.to_thread(leave_hint, self._services.home, source, heard.delivery, heard.hint)
            return Received(heard.delivery, "hint")
        events = [event for event in heard.events if not _is_ignored(event, watched)]
        if not events:
            return Received(heard.delivery, "ignored")
        return Received(heard.delivery, "events", await self._emitter.emit(events))

    def _listen(self, source: str, config: SentinelConfig) -> _Listen:
        """How a webhook of this name is heard. Raises InvalidConfig when its secret is not there."""
        hooks = config.webhooks
        if source == "github" and hooks.github is not None:
            key = self._secret(hooks.github.secret_env, source)
            me = Account.of(hooks.github.login)
            return lambda headers, body: github_heard(headers, body, secret=key, account=me)
        if source == "jira" and hooks.jira is not None:
            key = self._secret(hooks.jira.secret_env, source)
            mine = hooks.jira.account_id or ""
            account = JiraAccount(mine, frozenset({mine} - {""}))
            return lambda headers, body: jira_heard(headers, body, secret=key, account=account)
        if source in hooks.generic:
            token = self._secret(hooks.generic[source].token_env, source)
            now = self._services.clock()
            return lambda headers, body: generic_heard(source, headers, body, token=token, now=now)
        raise WebhookRefused(f"no webhook {source!r:.80} is set up: see webhooks in config/sentinel.yaml", 404)

    def _secret(self, variable: str, source: str) -> str:
        return secret(variable, f"webhooks: {source}", self._environment)


def _section(config: SentinelConfig, source: str) -> SourceSection | None:
    """The section of a source that can also be watched."""
    return {"github": config.github, "jira": config.jira}.get(source)


def _is_ignored(event: Event, section: SourceSection | None) -> bool:
    return section is not None and any(type_matches(pattern, event.type) for pattern in section.ignore)
