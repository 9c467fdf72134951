"""What one sees of a workflow at work: a live picture on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.cli import output
from kingdom.cli.picture import Picture, Shown
from kingdom.cli.workflow.log import event_document, print_json_line
from kingdom.cli.workflow.overview import COLUMNS, coloured, rows
from kingdom.cli.workflow.telling import event_line, said_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from kingdom.cli.workflow.watch import Frame
    from kingdom.workflow.overview import Overview
    from kingdom.workflow.ports import SeenEvent

_LINES: Final = 14  # of what happened and was said that stay on the screen
_DETAILS: Final = frozenset({"WorkStatusChanged", "WorkSpaceCreated", "QuerySent", "AgentStarted", "AgentStopped"})


class View(Shown):
    """Shows frames."""

    def show(self, frame: Frame) -> None:
        """How it stands now, and what happened."""

    def say(self, text: str) -> None:
        """A last word for people; programs have the status."""


def choose_view(*, json: bool) -> View:
    """The view that suits where the output goes."""
    if json:
        return JsonView()
    return LiveView() if sys.stdout.isatty() else PlainView()


class PlainView(View):
    """Lines, as they happen, and how it stands at the end."""

    def __init__(self) -> None:
        self._console = output.console()
        self._last: Frame | None = None

    def leave(self) -> None:
        """Print how it stands at the end."""
        if self._last is not None:
            self._console.print(headline(self._last))

    def show(self, frame: Frame) -> None:
        """Print what happened."""
        self._last = frame
        for line in lines(frame):
            self._console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        """A last word for people."""
        output.say(text)


class JsonView(View):
    """A JSON line for each event, each thing an agent said, and each change of status or cost."""

    def __init__(self) -> None:
        self._status: dict[str, object] = {}

    def show(self, frame: Frame) -> None:
        """Print what happened."""
        for event in frame.events:
            print_json_line({"kind": "event", **event_document(event)})
        for said in frame.said:
            print_json_line(
                {"kind": "said", "runId": said.run_id, "work": said.work, "task": said.task, "text": said.text}
            )
        workflow = frame.overview.workflow
        status: dict[str, object] = {
            "kind": "status",
            "workflowId": workflow.id,
            "status": workflow.status,
            "reason": workflow.reason,
            "costUsd": round(frame.cost_usd, 6),
            "tokens": frame.tokens,
        }
        if status != self._status:
            print_json_line(status)
        self._status = status


class LiveView(Picture, View):
    """One picture that changes."""

    def __init__(self) -> None:
        super().__init__(overflow="crop")
        self._lines: deque[Text] = deque(maxlen=_LINES)

    def show(self, frame: Frame) -> None:
        """Draw it anew."""
        self._lines.extend(lines(frame))
        self.draw(self._picture(frame))

    def say(self, text: str) -> None:
        """A last word, below the picture."""
        output.say(text)

    def _picture(self, frame: Frame) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        works = output.table((*COLUMNS, "cost"), _rows(frame), right=("attempt", "cost"))
        said = Text("\n", no_wrap=True, overflow="ellipsis").join(self._lines)
        said.no_wrap, said.overflow = True, "ellipsis"
        return Group(headline(frame), works, said)


def next_steps(overview: Overview) -> list[str]:
    """What one can do with a workflow that rests."""
    workflow = overview.workflow
    if workflow.status == "COMPLETED":
        return [
            f"{overview.git_names.get(tree.git_id, tree.git_id)}: the branch {tree.branch} in {tree.path}"
            for tree in overview.trees
            if tree.work_id is None and tree.path
        ]
    if workflow.status not in ("PAUSED", "FAILED"):
        return []
    last = [point.id for point in overview.checkpoints if point.complete and point.valid][-1:]
    steps = [f"kingdom workflow diff {last[0]} shows what changed"] if last else []
    if any(work.status in ("FAILED", "PAUSED") for work in overview.works):
        back = "without --retry it begins again at the last checkpoint"
        return [*steps, f"kingdom workflow resume {workflow.id} --retry goes on where it stopped; {back}"]
    return [*steps, f"kingdom workflow resume {workflow.id} goes on"]


def headline(frame: Frame) -> Text:
    """Which workflow, how it stands, what it cost."""
    from rich.text import Text

    workflow = frame.overview.workflow
    reason = f": {workflow.reason}" if workflow.reason else ""
    return Text.assemble(
        (output.clean(f"{workflow.name} "), "bold"),
        (output.clean(f"{workflow.id} "), "dim"),
        coloured(workflow.status),
        output.clean(" ".join(reason.split())),
        (f"  ${frame.cost_usd:,.2f}  {frame.tokens:,} tokens", "dim"),
    )


def lines(frame: Frame) -> list[Text]:
    """What happened and was said since the last frame, a line each."""
    from kingdom.workflow.telling import names_of

    names = names_of(frame.overview.works)
    told = [event_line(event, names) for event in frame.events if not _is_detail(event)]
    return told + [line for said in frame.said for line in said_line(said)]


def _is_detail(event: SeenEvent) -> bool:
    """Whether others tell the same; `kingdom workflow log` has them all."""
    return event.type in _DETAILS and event.payload.get("status") != "FAILED"


def _rows(frame: Frame) -> list[tuple[object, ...]]:
    """The works with what each has cost; names of tasks are indented."""
    costs = {name: f"${cost:,.2f}" for name, cost in frame.cost_by_work.items()}
    return [(*row, costs.get(str(row[0]), "")) for row in rows(frame.overview, compact=True)]
