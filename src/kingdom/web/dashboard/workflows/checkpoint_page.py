"""The page of one checkpoint: what changed, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.building import badge, button, empty, labelled, link, tag, text
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.acting import Hand
from kingdom.web.dashboard.workflows.diffs import DiffTable, rows_of
from kingdom.web.dashboard.workflows.saying import address, moment
from kingdom.web.dashboard.zone import zone_of
from kingdom.web.envelope import not_found
from kingdom.web.views.checkpoints import BASE, Checkpoint, read_diff
from kingdom.web.views.workflows import read_workflow

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.views.checkpoints import ChangedFile, Diff
    from kingdom.web.views.workflows import WorkflowFull

_AT_ONCE: Final = 3000  # rows of all files that are shown without being asked for
_TONES: Final = {"added": "completed", "deleted": "failed"}


@page("/workflows/{workflow_id}/checkpoints/{checkpoint_id}", title="checkpoint.title", nav="workflows")
async def checkpoint(visit: Visit, workflow_id: str, checkpoint_id: str, against: str = "") -> None:
    """What a checkpoint changed: since its work began, since the branch began, or since another checkpoint."""
    words = visit.words
    full = await read_workflow(visit.context, workflow_id)
    point = next((one for one in full.checkpoints if one.id == checkpoint_id), None)
    if point is None:
        raise not_found("WFL", "checkpoint", checkpoint_id)
    diff = await read_diff(visit.context, workflow_id, checkpoint_id, against=against or None)
    work = point.work_name or point.work_id
    actions = head(words("checkpoint.of", work=work), above=(full.name, address("workflows", workflow_id)))
    hand = Hand(visit, workflow_id, full.name, lambda: None)

    async def resume() -> None:
        if await hand.resume_from(point.id, work):
            ui.navigate.to(address("workflows", workflow_id))

    with actions:
        going_back = button(words("checkpoint.resume"), resume, icon="replay")
        going_back.set_enabled("resume" in full.allowed and point.valid)
        button(words("checkpoint.fork"), lambda: hand.fork(point.id, work), icon="call_split")
    with tag("div", "k-row k-wrapping k-filters"):
        text(moment(point.created_at, await zone_of(visit)), "k-muted")
        if not point.valid:
            text(words("checkpoint.left"), "k-badge k-tone-idle")
        _against(visit, full, point, against)
    _changes(visit, diff)


def _against(visit: Visit, full: WorkflowFull, point: Checkpoint, against: str) -> None:
    words = visit.words
    others = {
        one.id: words("checkpoint.against.one", work=one.work_name or one.work_id, number=one.attempt)
        for one in full.checkpoints
        if one.id != point.id
    }
    choices = {"": words("checkpoint.against.before"), BASE: words("checkpoint.against.base"), **others}

    def choose() -> None:
        ui.navigate.to(address("workflows", full.id, "checkpoints", point.id, against=field.value))

    field = ui.select(choices, value=against if against in choices else "", on_change=choose)
    labelled(field.props("outlined dense").classes("k-field k-against"), words("checkpoint.against"))


def _changes(visit: Visit, diff: Diff) -> None:
    words = visit.words
    if not any(repository.files for repository in diff.repositories):
        empty(words("checkpoint.same"), words("checkpoint.same.hint"), page=True)
        return
    room = _AT_ONCE
    for number, repository in enumerate(diff.repositories):
        if not repository.files:
            continue
        with tag("section", "k-column k-repository", aria_label=repository.name):
            with tag("div", "k-row k-wrapping"):
                text(repository.name, name="h2")
                text(f"{repository.older[:10]} → {repository.newer[:10]}", "k-mono k-muted")
                text(words("checkpoint.files", count=len(repository.files)), "k-muted")
            _file_list(visit, number, repository.files)
            for place, file in enumerate(repository.files):
                room = _file(visit, f"file-{number}-{place}", file, room)
            if repository.truncated:
                text(words("checkpoint.more"), "k-muted", name="div")


def _file_list(visit: Visit, number: int, files: list[ChangedFile]) -> None:
    with tag("nav", "k-card k-files", aria_label=visit.words("checkpoint.filelist")):
        for place, file in enumerate(files):
            with tag("div", "k-row"):
                _counts(file)
                link(_name(file), f"#file-{number}-{place}", "k-mono k-wrap")


def _file(visit: Visit, anchor: str, file: ChangedFile, room: int) -> int:
    words = visit.words
    rows, more = rows_of(file)
    with tag("section", "k-card k-file", id=anchor, aria_label=file.path):
        with tag("header", "k-card-head"):
            text(_name(file), "k-mono k-wrap", name="h3")
            badge(words.of("checkpoint.change", file.status), _TONES.get(file.status, "created"))
            with tag("div", "k-card-side"):
                _counts(file)
        if file.binary:
            text(words("checkpoint.binary"), "k-muted k-pad", name="div")
            return room
        with tag("div", "k-scroll", tabindex="0", role="group", aria_label=file.path) as body:
            if len(rows) <= room:
                DiffTable(rows, file.path)
            else:
                _later(visit, body, rows, file.path)
        if file.truncated or more:
            text(words("checkpoint.cut"), "k-muted k-pad", name="div")
    return max(0, room - len(rows))


def _later(visit: Visit, body: Element, rows: list[list[object]], label: str) -> None:
    def show() -> None:
        body.clear()
        with body:
            DiffTable(rows, label)

    button(visit.words("checkpoint.show", count=len(rows)), show).classes("k-pad")


def _counts(file: ChangedFile) -> None:
    text("" if file.added is None else f"+{file.added}", "k-text-ok k-mono k-lines-count")
    text("" if file.removed is None else f"−{file.removed}", "k-text-bad k-mono k-lines-count")


def _name(file: ChangedFile) -> str:
    return file.path if file.old_path is None else f"{file.old_path} → {file.path}"
