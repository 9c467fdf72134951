"""What an event of a workflow tells people: whether it is good news, and what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

News: TypeAlias = Literal["bad", "good", "plain"]
_BAD: Final = ("Failed", "Error", "Cancelled")
_GOOD: Final = ("Completed", "CheckpointCreated", "ReportGenerated")
_LONGEST: Final = 200  # characters of one value


class Event(Protocol):
    """What is known of something that happened."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def payload(self) -> Mapping[str, Any]: ...  # noqa: D102


class Named(Protocol):
    """Something with a name."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102


class NamedWork(Named, Protocol):
    """A Work with its tasks."""

    @property
    def tasks(self) -> Sequence[Named]: ...  # noqa: D102


def news(event: Event) -> News:
    """How people take it."""
    if any(word in event.type for word in _BAD) or event.payload.get("status") == "FAILED":
        return "bad"
    return "good" if any(word in event.type for word in _GOOD) else "plain"


def names_of(works: Iterable[NamedWork]) -> dict[str, str]:
    """The names of works and their tasks, by id."""
    return {one.id: one.name for work in works for one in (work, *work.tasks)}


def about(event: Event, names: Mapping[str, str]) -> str:
    """Everything it carries, in one line, with names for the ids of works and tasks."""
    told = (names.get(str(value), _shortened(value)) for key, value in event.payload.items() if key != "workflowId")
    return " · ".join(word for word in told if word)


def _shortened(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
