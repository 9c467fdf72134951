"""Slack as a messenger of the envoy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.bus import RetryPolicy
from kingdom.court.envoy.slack.context import SlackContext
from kingdom.court.envoy.slack.listener import SlackListener
from kingdom.court.envoy.slack.sender import SlackSender

if TYPE_CHECKING:
    from kingdom.court.config import SystemConfig
    from kingdom.court.envoy.config import SlackSection, SlackTokens
    from kingdom.court.loop import Services


# Slack as a place where people are.
#
# * :mod:`.api` calls the Web API, :mod:`.socket` receives over Socket Mode;
# * :mod:`.inbox` keeps what was received, :mod:`.understanding` reads it, :mod:`.ears` makes events of it;
# * :mod:`.voice` says messages, each once: :mod:`.posts` holds what it meant to post, and what became of that;
# * :mod:`.threads` has the files that say which thread belongs to which task, and which questions are open.


# Where voice and ears are put together.


SLACK_RETRY_POLICY: Final = RetryPolicy(base=2.0, cap=300.0, max_attempts=12)
"""About half an hour, for somebody to invite the app into a channel; when Slack is away, no attempt is counted."""


def open_slack(
    services: Services, config: SlackSection, system: SystemConfig, tokens: SlackTokens
) -> tuple[SlackSender, SlackListener]:
    """The voice and the ears of an envoy in Slack."""
    context = SlackContext(services, config, system, tokens)
    return SlackSender(context), SlackListener(context)
