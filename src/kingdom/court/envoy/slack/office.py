"""Where voice and ears are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.bus import RetryPolicy
from kingdom.court.envoy.slack.desk import Desk
from kingdom.court.envoy.slack.ears import SlackEars
from kingdom.court.envoy.slack.voice import SlackVoice

if TYPE_CHECKING:
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.envoy.config import SlackSection, Tokens
    from kingdom.court.loop import Services

RETRIES: Final = RetryPolicy(base=2.0, cap=300.0, max_attempts=12)
"""About half an hour, for somebody to invite the app into a channel; when Slack is away, no attempt is counted."""


def open_office(
    services: Services, config: SlackSection, system: SystemConfig, tokens: Tokens
) -> tuple[SlackVoice, SlackEars]:
    """The voice and the ears of an envoy in Slack."""
    desk = Desk(services, config, system, tokens)
    return SlackVoice(desk), SlackEars(desk)
