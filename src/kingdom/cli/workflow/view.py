"""A workflow at work: a live display on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output
from kingdom.cli.output import LiveDisplay, View
from kingdom.cli.workflow.inspection import event_document, print_json_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType
    from rich.text import Text

    from kingdom.cli.workflow.watch import WorkflowFrame
    from kingdom.workflow.agent_records import TranscriptLine
    from kingdom.workflow.domain.work import Task, Work
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import StoredEvent


# A workflow as people look at it: rows of a table, in colours.


COLUMNS: Final = ("step", "status", "agent", "attempt", "more")
_STATUS_STYLES: Final = {
    "RUNNING": "cyan", "GENERATING": "cyan", "PREPARING": "cyan", "RESUMING": "cyan",
    "COMPLETED": "green", "READY": "green",
    "PAUSED": "yellow", "CANCELLED": "dim", "PENDING": "dim",
    "FAILED": "red", "ERROR": "red",
}  # fmt: skip
_MAX_NOTE_CHARS: Final = 160  # characters of an error in a table; --json has all of it


def overview_rows(overview: WorkflowOverview, *, compact: bool = False) -> Iterator[tuple[object, ...]]:
    """A row for each Work, followed by those of its tasks; ``compact``: only of those that are under way."""
    for work in overview.works:
        under_way = work.status not in ("PENDING", "COMPLETED")
        yield _work_row(overview, work, compact=compact)
        for task in work.tasks if under_way or not compact else ():
            yield f"  {task.name}", coloured(_task_status(task)), "", task.attempt, shorten(_task_note(overview, task))


def _work_row(overview: WorkflowOverview, work: Work, *, compact: bool) -> tuple[object, ...]:
    point = overview.checkpoint_of(work)
    more = work.error or ""
    if not more and point is not None:
        more = f"checkpoint {point.id[-8:] if compact else point.id}"
    waits = f" (after {', '.join(work.after)})" if work.after and not compact else ""
    agent = "" if work.agent_status == "IDLE" else work.agent_status.lower()
    return f"{work.name}{waits}", coloured(work.status), agent, work.attempt, shorten(more)


def _task_note(overview: WorkflowOverview, task: Task) -> str:
    if task.error:
        return task.error
    report = overview.report_of(task)
    return f"report {report.file_path}" if report is not None and report.file_path else ""


def coloured(status: str) -> Any:
    """A status word in the colour people expect."""
    return output.styled(status, _STATUS_STYLES.get(status.split()[0], ""))


def shorten(text: str) -> str:
    """One line, and not a long one."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_NOTE_CHARS else line[: _MAX_NOTE_CHARS - 1] + "…"


def _task_status(task: Task) -> str:
    if task.status != "RUNNING":
        return task.status
    return "RUNNING (report)" if task.report_status == "GENERATING" else f"RUNNING ({task.query_status.lower()})"


# Events and agent output as lines for people.


_NEWS_STYLES: Final = {"bad": "red", "good": "green", "plain": "cyan"}


def event_line(event: StoredEvent, names: Mapping[str, str]) -> Text:
    """One line: when, which number, what, and about what; ``names`` are those of works and tasks, by id."""
    from rich.text import Text

    from kingdom.workflow.overview import event_details, event_tone

    return Text.assemble(
        (f"{event.occurred_at.astimezone():%H:%M:%S}", "dim"),
        f" {event.sequence:>5} ",
        (f"{output.sanitize(event.type):<24} ", _NEWS_STYLES[event_tone(event)]),
        output.sanitize(event_details(event, names)),
    )


def said_lines(said: TranscriptLine) -> list[Text]:
    """What an agent said, with whose work it is on before each line."""
    from rich.text import Text

    who = output.sanitize(f"{said.work}/{said.task} │ ")
    return [Text.assemble((who, "magenta"), output.sanitize(line)) for line in said.text.splitlines() if line.strip()]


# What one sees of a workflow at work: a live picture on a terminal, lines elsewhere, JSON lines for programs.


_MAX_LINES: Final = 14  # of what happened and was said that stay on the screen
_DETAIL_EVENTS: Final = frozenset(
    {"WorkStatusChanged", "WorkSpaceCreated", "QuerySent", "AgentStarted", "AgentStopped"}
)


class WorkflowView(View):
    """Shows frames."""

    def show(self, frame: WorkflowFrame) -> None:
        """How it stands now, and what happened."""

    def say(self, text: str) -> None:
        """A last word for people; programs have the status."""


def choose_view(*, json: bool) -> WorkflowView:
    """The view that suits where the output goes."""
    if json:
        return JsonWorkflowView()
    return LiveWorkflowView() if sys.stdout.isatty() else PlainWorkflowView()


class PlainWorkflowView(WorkflowView):
    """Lines, as they happen, and how it stands at the end."""

    def __init__(self) -> None:
        self._console = output.console()
        self._last: WorkflowFrame | None = None

    def leave(self) -> None:
        """Print how it stands at the end."""
        if self._last is not None:
            self._console.print(headline(self._last))

    def show(self, frame: WorkflowFrame) -> None:
        """Print what happened."""
        self._last = frame
        for line in frame_lines(frame):
            self._console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        """A last word for people."""
        output.say(text)


class JsonWorkflowView(WorkflowView):
    """A JSON line for each event, each thing an agent said, and each change of status or cost."""

    def __init__(self) -> None:
        self._status: dict[str, object] = {}

    def show(self, frame: WorkflowFrame) -> None:
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


class LiveWorkflowView(LiveDisplay, WorkflowView):
    """One picture that changes."""

    def __init__(self) -> None:
        super().__init__(overflow="crop")
        self._lines: deque[Text] = deque(maxlen=_MAX_LINES)

    def show(self, frame: WorkflowFrame) -> None:
        """Draw it anew."""
        self._lines.extend(frame_lines(frame))
        self.draw(self._picture(frame))

    def say(self, text: str) -> None:
        """A last word, below the picture."""
        output.say(text)

    def _picture(self, frame: WorkflowFrame) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        works = output.table((*COLUMNS, "cost"), _cost_rows(frame), right=("attempt", "cost"))
        said = Text("\n", no_wrap=True, overflow="ellipsis").join(self._lines)
        said.no_wrap, said.overflow = True, "ellipsis"
        return Group(headline(frame), works, said)


def next_steps(overview: WorkflowOverview) -> list[str]:
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


def headline(frame: WorkflowFrame) -> Text:
    """Which workflow, how it stands, what it cost."""
    from rich.text import Text

    workflow = frame.overview.workflow
    reason = f": {workflow.reason}" if workflow.reason else ""
    return Text.assemble(
        (output.sanitize(f"{workflow.name} "), "bold"),
        (output.sanitize(f"{workflow.id} "), "dim"),
        coloured(workflow.status),
        output.sanitize(" ".join(reason.split())),
        (f"  ${frame.cost_usd:,.2f}  {frame.tokens:,} tokens", "dim"),
    )


def frame_lines(frame: WorkflowFrame) -> list[Text]:
    """What happened and was said since the last frame, a line each."""
    from kingdom.workflow.overview import names_by_id

    names = names_by_id(frame.overview.works)
    told = [event_line(event, names) for event in frame.events if not _is_detail(event)]
    return told + [line for said in frame.said for line in said_lines(said)]


def _is_detail(event: StoredEvent) -> bool:
    """Whether others tell the same; `kingdom workflow log` has them all."""
    return event.type in _DETAIL_EVENTS and event.payload.get("status") != "FAILED"


def _cost_rows(frame: WorkflowFrame) -> list[tuple[object, ...]]:
    """The works with what each has cost; names of tasks are indented."""
    costs = {name: f"${cost:,.2f}" for name, cost in frame.cost_by_work.items()}
    return [(*row, costs.get(str(row[0]), "")) for row in overview_rows(frame.overview, compact=True)]
