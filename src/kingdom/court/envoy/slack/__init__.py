"""Slack: where the envoy posts messages and receives replies.

* :mod:`.api` calls the Web API and receives over Socket Mode.
* :mod:`.payloads` parses what Slack sends; :mod:`.posts` builds what is posted, from Markdown (:mod:`.rich_text`).
* :mod:`.context` is what sender and listener share, with the state files below ``state/envoy/``.
* :mod:`.sender` posts messages, each once; :mod:`.listener` turns what people write into events.
* :mod:`.cleaner` removes what is left of both.
* :mod:`.checks` are the checks of ``kingdom connect slack``.
"""

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


SLACK_RETRY_POLICY: Final = RetryPolicy(base=2.0, cap=300.0, max_attempts=12)
"""About half an hour: time to invite the app into a channel. No attempt is counted while Slack is unreachable or out of
order, or refuses the token."""


def open_slack(
    services: Services, config: SlackSection, system: SystemConfig, tokens: SlackTokens
) -> tuple[SlackSender, SlackListener]:
    """Create the sender and the listener, with a common context."""
    context = SlackContext(services, config, system, tokens)
    return SlackSender(context), SlackListener(context)
