"""What a scripted model answers: one turn for each request that asks it to go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Say:
    """It says something and is done."""

    text: str


@dataclass(frozen=True)
class Use:
    """It wants tools used, all at once: (name, arguments) each."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    text: str | None = None

    @classmethod
    def tool(cls, name: str, **arguments: Any) -> Use:
        return cls(((name, arguments),))


@dataclass(frozen=True)
class Stall:
    """It takes the request and never answers."""


@dataclass(frozen=True)
class Refuse:
    """The service answers with an error. It keeps doing so: a refusal is not used up."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


Turn = Say | Use | Stall | Refuse
Later = Callable[[], Turn]  # a turn that is made when its request is there; meanwhile the service is silent
