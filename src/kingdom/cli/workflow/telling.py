"""Events and agent output as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.listening import Said
    from kingdom.workflow.ports import SeenEvent

_BAD: Final = ("Failed", "Error", "Cancelled")
_GOOD: Final = ("Completed", "CheckpointCreated", "ReportGenerated")
_LONGEST: Final = 200


class Names:
    """The names of works and tasks, by id."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._of = {work.id: work.name for work in works}
        self._of |= {task.id: task.name for work in works for task in work.tasks}

    def __getitem__(self, item_id: object) -> str:
        return self._of.get(str(item_id), str(item_id))


def event_line(event: SeenEvent, names: Names) -> Text:
    """One line: when, which number, what, and about what."""
    from rich.text import Text

    bad = any(word in event.type for word in _BAD) or event.payload.get("status") == "FAILED"
    style = "red" if bad else "green" if any(word in event.type for word in _GOOD) else "cyan"
    return Text.assemble(
        (f"{event.occurred_at.astimezone():%H:%M:%S}", "dim"),
        f" {event.sequence:>5} ",
        (f"{output.clean(event.type):<24} ", style),
        output.clean(_about(event, names)),
    )


def said_line(said: Said) -> list[Text]:
    """What an agent said, with whose work it is on before each line."""
    from rich.text import Text

    who = output.clean(f"{said.work}/{said.task} │ ")
    return [Text.assemble((who, "magenta"), output.clean(line)) for line in said.text.splitlines() if line.strip()]


def _about(event: SeenEvent, names: Names) -> str:
    words = []
    for key, value in event.payload.items():
        if key == "workflowId":
            continue
        if key in ("workId", "taskId", "fromWorkId"):
            words.append(names[value])
        else:
            words.append(_shortened(value))
    return " · ".join(word for word in words if word)


def _shortened(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
