"""What can go wrong with Slack, by what is known afterwards."""

from __future__ import annotations

from typing import Final

from kingdom.court.envoy.port import NotNow
from kingdom.court.errors import CourtError

_ADVICE: Final = {
    "not_in_channel": "invite the app into the channel: /invite @kingdom",
    "channel_not_found": "the channel does not exist, or it is private and the app was not invited",
    "is_archived": "the channel is archived: name another one in config/envoy.yaml",
    "invalid_auth": "the token is not valid: kingdom connect slack checks it",
    "not_authed": "there is no token: kingdom connect slack checks it",
    "token_revoked": "the token was revoked: install the app again and take the new one",
    "account_inactive": "the app was removed from the workspace: install it again",
    "missing_scope": "the app may not do that: kingdom connect slack lists the scopes it needs",
    "not_allowed_token_type": "a token of the wrong kind: bot tokens begin with xoxb-, app-level tokens with xapp-",
}


class SlackProblem(CourtError):
    """A call that did not do what it should."""

    code = "SLACK"


class Refused(SlackProblem):
    """Slack said no: nothing was done. ``error`` is its word for why."""

    def __init__(self, method: str, error: str, needed: str = "") -> None:
        self.method, self.error, self.needed = method, error, needed
        advice = _ADVICE.get(error, "")
        if needed:
            advice = f"the app needs the scope {needed}: add it at api.slack.com and install the app again"
        super().__init__(f"Slack refuses {method}: {error}" + (f" ({advice})" if advice else ""))


class Unsure(SlackProblem):
    """No answer, or none that can be understood: it may have been done, or not."""


class TooFast(NotNow):
    """Slack asks to wait: nothing was done."""


class Unreachable(NotNow):
    """Nobody is there: nothing was done."""
