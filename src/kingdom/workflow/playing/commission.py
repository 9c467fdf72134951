"""What a general asks for: the options of an order for the engine ``workflow``, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.errors import InvalidOrder

if TYPE_CHECKING:
    from kingdom.agents.port import Order

_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said to a question of the workflow; ``task_id`` is the court's task that brings it."""

    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Commission:
    """One workflow that is to be done for a task of a court."""

    home: Path  # the folder of the workflows
    template: str
    key: str  # the same for all runs of one piece of work: so its workflow is found again
    template_file: Path | None = None  # where the template may lie, beside the store
    repository: tuple[str, str] | None = None  # name and URL
    issue_key: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the settings of each, by name
    retries: int = 0  # how many runs of the task have failed so far
    answer: Answer | None = None


def read_commission(order: Order) -> Commission:
    """The commission in an order's options. Raises :class:`InvalidOrder`."""
    given = order.options
    try:
        key = given.get("key") or order.task_id
        if not _KEY.match(key):
            raise ValueError(f"key {key!r:.80} is not the id of a task")  # noqa: TRY301
        file, repository, answer = given.get("template_file"), given.get("repository"), given.get("answer")
        return Commission(
            home=Path(given["home"]),
            template=str(given["template"]),
            key=key,
            template_file=None if file is None else Path(file),
            repository=None if repository is None else (str(repository["name"]), str(repository["url"])),
            issue_key=given.get("issue_key"),
            variables=dict(given.get("variables") or {}),
            engines=dict(given.get("engines") or {}),
            retries=int(given.get("retries") or 0),
            answer=None if answer is None else Answer(str(answer["task_id"]), str(answer["text"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidOrder(f"run {order.run_id}: its options make no workflow: {what}") from None
