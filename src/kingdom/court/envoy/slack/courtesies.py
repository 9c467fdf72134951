"""Small things that may be left undone: reactions, notes that only one person sees, a question shown as closed.

None of them may hold up a message. They are tried once; only when Slack asks to wait, they wait.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.envoy.port import NotNow
from kingdom.court.envoy.slack.errors import Refused, SlackProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.envoy.slack.api import SlackApi

SEEN: Final = "eyes"
DONE: Final = "white_check_mark"
FAILED: Final = "x"
_MOST: Final = 500  # that wait; then the oldest is left undone
_FINE: Final = ("already_reacted", "no_reaction", "message_not_found", "thread_not_found")
log = logging.getLogger("kingdom.court.envoy.slack")


class Courtesies:
    """Calls that are owed."""

    def __init__(self, api: SlackApi, clock: Callable[[], float], *, reactions: bool) -> None:
        self._api = api
        self._clock = clock
        self._reactions = reactions
        self._owed: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_MOST)
        self._not_before = 0.0

    def mark(self, channel: str, ts: str, name: str) -> None:
        """Let a post show a state; the one it showed before goes."""
        if not self._reactions:
            return
        self.owe("reactions.add", channel=channel, timestamp=ts, name=name)
        if name != SEEN:
            self.owe("reactions.remove", channel=channel, timestamp=ts, name=SEEN)

    def whisper(self, channel: str, user: str, text: str, thread_ts: str | None) -> None:
        """Tell one person something."""
        self.owe("chat.postEphemeral", channel=channel, user=user, text=text, thread_ts=thread_ts)

    def owe(self, method: str, **arguments: Any) -> None:
        """Note a call, to be made by :meth:`pay`."""
        self._owed.append((method, arguments))

    async def pay(self) -> None:
        """Make the calls that are owed, as far as Slack lets us."""
        while self._owed and self._clock() >= self._not_before:
            method, arguments = self._owed.popleft()
            try:
                await self._api.call(method, **arguments)
            except NotNow as wait:
                self._owed.appendleft((method, arguments))
                self._not_before = self._clock() + wait.after
            except SlackProblem as error:
                if not (isinstance(error, Refused) and error.error in _FINE):
                    log.warning("%s", error)
