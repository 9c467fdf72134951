"""Views of a workflow: a live display on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import sys
import time
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from kingdom.cli import output
from kingdom.cli.output import LiveDisplay, View
from kingdom.cli.workflow.names import workflow_word
from kingdom.cli.workflow.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType
    from rich.status import Status
    from rich.text import Text

    from kingdom.cli.workflow.watch import WorkflowFrame
    from kingdom.gitops.commits import FileDiff
    from kingdom.workflow.agent_records import TranscriptLine
    from kingdom.workflow.domain.work import Task, Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import StoredEvent

COLUMNS: Final = ("step", "status", "agent", "attempt", "more")
_STATUS_STYLES: Final = {
    "RUNNING": "cyan", "GENERATING": "cyan", "PREPARING": "cyan", "RESUMING": "cyan",
    "COMPLETED": "green", "READY": "green",
    "PAUSED": "yellow", "WAITING": "yellow", "CANCELLED": "dim", "PENDING": "dim",
    "FAILED": "red", "ERROR": "red",
}  # fmt: skip
SHORT_ID_CHARS: Final = 12  # the end of an id, which commands accept
_MAX_NOTE_CHARS: Final = 160  # characters of an error in a table; --json has all of it
_NEWS_STYLES: Final = {"bad": "red", "good": "green", "plain": "cyan"}
_NO_WAYS: Final = Ways()
_MAX_LINES: Final = 14  # of events and agent output that stay on the screen
_DETAIL_EVENTS: Final = frozenset(
    {"WorkStatusChanged", "WorkSpaceCreated", "QuerySent", "AgentStarted", "AgentStopped"}
)


def overview_rows(overview: WorkflowOverview, *, compact: bool = False) -> Iterator[tuple[object, ...]]:
    """Yield a row for each Work and its tasks; ``compact`` leaves out the tasks of works that are not active."""
    for work in overview.works:
        active = work.status not in ("PENDING", "COMPLETED")
        yield _work_row(overview, work, compact=compact)
        for task in work.tasks if active or not compact else ():
            yield f"  {task.name}", coloured(_task_status(task)), "", task.attempt, shorten(_task_note(overview, task))


def _work_row(overview: WorkflowOverview, work: Work, *, compact: bool) -> tuple[object, ...]:
    point = overview.checkpoint_of(work)
    more = work.error or ""
    if not more and point is not None:
        more = f"checkpoint {point.id[-SHORT_ID_CHARS:]}"
    waits = f" (after {', '.join(work.after)})" if work.after and not compact else ""
    agent = "" if work.agent_status == "IDLE" else work.agent_status.lower()
    return f"{work.name}{waits}", coloured(work.status), agent, work.attempt, shorten(more)


def _task_note(overview: WorkflowOverview, task: Task) -> str:
    if task.error:
        return task.error
    report = overview.report_of(task)
    return f"report {report.file_path}" if report is not None and report.file_path else ""


def line_counts(file: FileDiff) -> str:
    """Return how many lines of a file were added and removed."""
    return "binary" if file.binary else f"+{file.added} -{file.removed}"


def coloured(status: str) -> output.Styled:
    """Return a status in its colour."""
    return output.Styled(status, _STATUS_STYLES.get(status.split()[0], ""))


def shorten(text: str) -> str:
    """Return the text as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_NOTE_CHARS else line[: _MAX_NOTE_CHARS - 1] + "…"


def _task_status(task: Task) -> str:
    if task.status != "RUNNING":
        return task.status
    return "RUNNING (report)" if task.report_status == "GENERATING" else f"RUNNING ({task.query_status.lower()})"


def event_line(event: StoredEvent, names: Mapping[str, str]) -> Text:
    """Return an event as one line; ``names`` are those of works and tasks, by id."""
    from rich.text import Text

    from kingdom.workflow.overview import event_details, event_tone

    return Text.assemble(
        (f"{event.occurred_at.astimezone():%H:%M:%S}", "dim"),
        f" {event.sequence:>5} ",
        (f"{output.sanitize(event.type):<24} ", _NEWS_STYLES[event_tone(event)]),
        output.sanitize(event_details(event, names)),
    )


def event_document(event: StoredEvent) -> dict[str, Any]:
    """Return an event as a JSON document."""
    return {
        "sequence": event.sequence,
        "type": event.type,
        "occurredAt": event.occurred_at.isoformat(),
        "attempt": event.attempt,
        "payload": event.payload,
    }


def said_lines(said: TranscriptLine) -> list[Text]:
    """Return agent output, each line prefixed with work and task."""
    from rich.text import Text

    who = output.sanitize(f"{said.work}/{said.task} │ ")
    return [Text.assemble((who, "magenta"), output.sanitize(line)) for line in said.text.splitlines() if line.strip()]


class WorkflowView(View):
    """Shows the frames of a workflow."""

    def show(self, frame: WorkflowFrame) -> None:
        """Show the current state and what happened since the last frame."""

    def say(self, text: str) -> None:
        """Print a closing line for people; programs have the status."""


def choose_view(*, json: bool) -> WorkflowView:
    """Return the view for the kind of output."""
    if json:
        return JsonWorkflowView()
    return LiveWorkflowView() if sys.stdout.isatty() else PlainWorkflowView()


class PlainWorkflowView(WorkflowView):
    """Prints a line for each event, and the state at the end."""

    def __init__(self) -> None:
        self._console = output.console()
        self._last: WorkflowFrame | None = None

    def leave(self) -> None:
        if self._last is not None:
            self._console.print(headline(self._last))

    def show(self, frame: WorkflowFrame) -> None:
        self._last = frame
        for line in frame_lines(frame):
            self._console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        output.say(text)


class JsonWorkflowView(WorkflowView):
    """Prints a JSON line for each event, each piece of agent output, and each change of status or cost."""

    def __init__(self) -> None:
        self._status: dict[str, object] = {}

    def show(self, frame: WorkflowFrame) -> None:
        for event in frame.events:
            output.print_json_line({"kind": "event", **event_document(event)})
        for said in frame.said:
            output.print_json_line(
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
            output.print_json_line(status)
        self._status = status


class RequestView(WorkflowView):
    """Prints what the agent of a single Work says and does, with its time and cost below on a terminal."""

    def __init__(self, *, watch: bool) -> None:
        self._watch = watch
        self._status: Status | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if sys.stdout.isatty():  # elsewhere rich is not loaded, which takes a while
            self._status = output.console().status("starting")
            self._status.start()
        return self

    def leave(self) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, frame: WorkflowFrame) -> None:
        for said in frame.said if self._watch else ():
            self._print(said.text)
        for event in frame.events:
            if event.type in ("QueryFailed", "ReportFailed"):
                error = " ".join(str(event.payload.get("error", "")).split())
                self._print(f"failed: {error}", "red")
        if self._status is not None:
            seconds = time.monotonic() - self._began
            state = frame.overview.workflow.status.lower()
            self._status.update(f"{state} {seconds:.0f} s  ${frame.cost_usd:,.2f}  {frame.tokens:,} tokens")

    def say(self, text: str) -> None:
        output.say(text)

    def _print(self, text: str, style: str = "") -> None:
        if self._status is None:
            output.say(text)
            return
        from rich.text import Text

        self._status.console.print(Text(output.wrap(output.sanitize(text)), style), soft_wrap=True)


class LiveWorkflowView(LiveDisplay, WorkflowView):
    """Draws one display that is updated in place."""

    def __init__(self) -> None:
        super().__init__(overflow="crop")
        self._lines: deque[Text] = deque(maxlen=_MAX_LINES)

    def show(self, frame: WorkflowFrame) -> None:
        self._lines.extend(frame_lines(frame))
        self.draw(self._render(frame))

    def say(self, text: str) -> None:
        output.say(text)

    def _render(self, frame: WorkflowFrame) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        works = output.Table((*COLUMNS, "cost"), _cost_rows(frame), right=("attempt", "cost"))
        said = Text("\n", no_wrap=True, overflow="ellipsis").join(self._lines)
        said.no_wrap, said.overflow = True, "ellipsis"
        return Group(headline(frame), works, said)


def next_steps(overview: WorkflowOverview, ways: Ways = _NO_WAYS) -> list[str]:
    """Return what the user can do with a workflow that rests, and in which ways it can be landed."""
    workflow, word = overview.workflow, workflow_word(overview.workflow)
    if workflow.status == "COMPLETED":
        return _result_lines(overview, ways)
    if workflow.status not in ("PAUSED", "FAILED"):
        return []
    follow_up = f"kingdom workflow follow-up {word} TEXT"
    last = [point.id for point in overview.checkpoints if point.complete and point.valid][-1:]
    steps = [output.step(f"kingdom workflow diff {last[0][-SHORT_ID_CHARS:]}", "shows what changed")] if last else []
    if waiting := [work for work in overview.works if work.status == "WAITING"]:
        answers = output.step(f"kingdom workflow answer {word} TEXT", "answers the question, and it goes on")
        return [*steps, answers, *_default_lines(waiting)]
    if workflow.status == "FAILED" or any(work.status == "FAILED" for work in overview.works):
        back = "without --retry it restarts from the last checkpoint"
        retry = output.step(f"kingdom workflow resume {word} --retry", f"continues where it stopped; {back}")
        more = output.step(follow_up, "continues with what you say")
        begun = any(work.status != "PENDING" for work in overview.works)
        return [*steps, retry, *([more] if begun else [])]
    if any(work.status == "PAUSED" for work in overview.works):
        drop = "with --discard it restarts from the last checkpoint"
        resume = output.step(f"kingdom workflow resume {word}", f"continues where it stopped; {drop}")
        return [*steps, resume, output.step(follow_up, "continues with what you say")]
    more = output.step(follow_up, "has the agent change something first")
    return [*steps, output.step(f"kingdom workflow resume {word}", "continues it"), *([more] if last else [])]


def _default_lines(waiting: list[Work]) -> list[str]:
    """Return what happens to questions that nobody answers."""
    asking = [task for work in waiting if (task := work.current_task) is not None and task.deadline is not None]
    return [
        f"without an answer by {datetime.fromisoformat(task.deadline).astimezone():%Y-%m-%d %H:%M}, "
        f"it goes on with: {task.default}"
        for task in asking
        if task.deadline is not None and task.default is not None
    ]


def _result_lines(overview: WorkflowOverview, ways: Ways) -> list[str]:
    """Return where the result of a completed workflow is, and how it is landed."""
    word, landings = workflow_word(overview.workflow), {one.git_id: one for one in overview.landings}
    lines = []
    for tree in overview.present_trees:
        if tree.work_id is not None or not tree.path:
            continue
        name, landing = overview.git_names.get(tree.git_id, tree.git_id), landings.get(tree.git_id)
        if landing is not None and landing.error:
            lines.append(f"{name}: not landed: {landing.error}")
        if landing is not None and landing.pushed:
            lines.append(output.step(f"{name}: landed on {landing.branch}:", landing.url or landing.remote))
        else:
            lines.append(output.step(f"{name}: the branch {tree.branch} in", tree.path))
    if (again := land_again_text(overview.workflow)) is not None:
        lines.append(again)
    elif any(one.error for one in landings.values()) or (lines and not landings):
        lines += _land_lines(word, ways)
    if lines:
        lines.append(output.step(f"kingdom workflow diff {word} --base", "shows what changed"))
        follow_up = f"kingdom workflow follow-up {word} TEXT"
        lines.append(output.step(follow_up, "has the agent do more on the same branch"))
    return lines


def land_again_text(workflow: Workflow) -> str | None:
    """Return when a workflow that is not landed yet is landed again, and what a person can do; None if it is not."""
    if (again := workflow.land_again) is None:
        return None
    word, at = workflow_word(workflow), f"{again.at.astimezone():%Y-%m-%d %H:%M}"
    now = f"kingdom workflow land {word} does it now, kingdom workflow cancel {word} gives it up"
    return output.step(f"an engine tries again at {at}:", now)


def _land_lines(word: str, ways: Ways) -> list[str]:
    """Return the commands that land a workflow, in the ways that there are."""
    lines, land = [], f"kingdom workflow land {word}"
    if "pull-request" in ways.choices:
        lines.append(output.step(land, "pushes it and opens a pull request"))
    elif "push" in ways.choices:
        lines.append(output.step(f"{land} --push", "pushes it"))
    if "checkout" in ways.choices:
        lines.append(output.step(f"{land} --into {ways.into}", "makes its branch in your checkout"))
    return lines


def headline(frame: WorkflowFrame) -> Text:
    """Return the name, the status and the cost of a workflow."""
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
    """Return what happened and what agents said since the last frame, one line each."""
    from kingdom.workflow.overview import names_by_id

    names = names_by_id(frame.overview.works)
    shown = [event_line(event, names) for event in frame.events if not _is_detail(event)]
    return shown + [line for said in frame.said for line in said_lines(said)]


def _is_detail(event: StoredEvent) -> bool:
    """Return whether other events say the same; `kingdom workflow log` shows them all."""
    return event.type in _DETAIL_EVENTS and event.payload.get("status") != "FAILED"


def _cost_rows(frame: WorkflowFrame) -> list[tuple[object, ...]]:
    """Return the rows of works and tasks, with the cost of each work."""
    costs = {name: f"${cost:,.2f}" for name, cost in frame.cost_by_work.items()}
    return [(*row, costs.get(str(row[0]), "")) for row in overview_rows(frame.overview, compact=True)]
