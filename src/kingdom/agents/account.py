"""What a run has said and used so far, from its events."""

from __future__ import annotations

from typing import Literal

from kingdom.agents.port import AgentEvent, Began, Caps, Finished, RateLimit, Text, Tokens, ToolUse, Usage
from kingdom.agents.prices import estimate


class Account:
    """Adds up the events of one run."""

    def __init__(self, model: str | None, session_id: str | None) -> None:
        self.model = model
        self.session_id = session_id
        self.tokens = Tokens()
        self.turns = 0
        self.finished: Finished | None = None
        self.rejected: RateLimit | None = None
        self.last_text: str | None = None
        self._cost: float | None = None

    def take(self, event: AgentEvent) -> None:
        """Take an event in."""
        match event:
            case Began(session_id, model):
                self.session_id = session_id or self.session_id
                self.model = model or self.model
            case Text(text):
                self.last_text = text
            case Usage(tokens, cost, turns):
                self.tokens = tokens
                self._cost = cost if cost is not None else self._cost
                self.turns = max(turns, self.turns)
            case RateLimit(status):
                self.rejected = event if status == "rejected" else None
            case ToolUse():
                self.rejected = None  # it works on: the limit was lifted, or another account took over
            case Finished():
                self.finished = event

    @property
    def cost_usd(self) -> float | None:
        """What it cost: as the engine says, or as the price list says."""
        if self._cost is not None:
            return self._cost
        return estimate(self.model, self.tokens).cost_usd if self.tokens.total else None

    @property
    def cost_source(self) -> Literal["result", "stream", "estimate", "none"]:
        """Where the cost comes from."""
        if self._cost is not None:
            return "result" if self.finished else "stream"
        return "estimate" if self.tokens.total else "none"

    @property
    def price_known(self) -> bool:
        """Whether an estimate rests on a price of the model itself."""
        return self.cost_source != "estimate" or estimate(self.model, self.tokens).known

    def over(self, caps: Caps) -> str | None:
        """Which cap it is over, in words."""
        used: tuple[tuple[str, float, float | None], ...] = (
            ("turns", self.turns, caps.turns),
            ("tokens", self.tokens.total, caps.tokens),
            ("US dollars", self.cost_usd or 0.0, caps.cost_usd),
        )
        for what, so_far, cap in used:
            if cap is not None and so_far > cap:
                return f"it is over its cap: {so_far:g} {what} used, {cap:g} allowed"
        return None
