"""Telling people: once when something begins, once when it is over, however often it is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kingdom.court.models import MessageType, Urgency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that has no id yet."""

    content: str
    type: MessageType = "notification"
    urgency: Urgency = "normal"
    context: dict[str, Any] = field(default_factory=dict)


class Alerts:
    """Compares what is so with what people were told; the difference becomes drafts.

    ``told`` belongs to the caller, who keeps it together with the drafts: both are on the disk, or neither is.
    """

    def __init__(self, told: dict[str, str]) -> None:
        self._told = told
        self.drafts: list[Draft] = []

    def tell(
        self,
        key: str,
        state: str | None,
        text: Callable[[], str],
        over: Callable[[], str],
        *,
        urgency: Urgency = "high",
    ) -> None:
        """Say how the thing ``key`` stands: ``state`` is a word for it, None when all is well."""
        if self._told.get(key) == state:
            return
        context = {"alert": key, "state": state or "over"}
        if state is None:
            del self._told[key]
            self.drafts.append(Draft(over(), context=context))
        else:
            self._told[key] = state
            self.drafts.append(Draft(text(), urgency=urgency, context=context))

    def standing(self, prefix: str) -> list[str]:
        """Of which things, by what comes after the prefix, people were told that they are not well."""
        return [key.removeprefix(prefix) for key in self._told if key.startswith(prefix)]

    def forget(self, prefix: str, keep: Iterable[str]) -> None:
        """Drop alerts about things that are not there any more; nobody needs to hear that."""
        kept = {f"{prefix}{name}" for name in keep}
        for key in [key for key in self._told if key.startswith(prefix) and key not in kept]:
            del self._told[key]
