"""What is wrong with a plan, as people see it: which field of the form it is, and how the place is called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nicegui.elements.mixins.validation_element import ValidationElement

    from kingdom.base.yamlfile import WrongValue
    from kingdom.web.dashboard.words import Translations
    from kingdom.web.dashboard.workflows.plan_draft import PlanDraft, TaskDraft, WorkDraft

FieldKey: TypeAlias = tuple[str, str]
"""The uid of a work or task (empty: the plan itself), and the name of a field of its draft."""
_FIELDS: Final = {"report": "outline"}  # where a key of the file and a field of the form have different names
_LABELS: Final = {
    "name": "plan.name",
    "description": "plan.description",
    "repositories": "plan.repositories",
    "mcp": "plan.mcp",
    "on_failure": "plan.failure",
    "engine": "plan.engine",
    "options": "plan.options",
    "model": "plan.model",
    "after": "plan.after",
    "query": "plan.query",
    "outline": "plan.outline",
    "retries": "plan.retries",
}


class _Located:
    """The work, task and field that a path of the file leads to."""

    def __init__(self, draft: PlanDraft, path: Sequence[str | int]) -> None:
        self.work: tuple[int, WorkDraft] | None = None
        self.task: tuple[int, TaskDraft] | None = None
        rest = list(path)
        if len(rest) > 1 and rest[0] == "works" and isinstance(rest[1], int) and rest[1] < len(draft.works):
            self.work = rest[1], draft.works[rest[1]]
            rest = rest[2:]
            tasks = self.work[1].tasks
            if len(rest) > 1 and rest[0] == "tasks" and isinstance(rest[1], int) and rest[1] < len(tasks):
                self.task = rest[1], tasks[rest[1]]
                rest = rest[2:] or ["query"]  # a task may be written as its query alone
        name = str(rest[0]) if rest else ""
        self.field = "options" if rest[:2] == ["engine", "options"] else _FIELDS.get(name, name)

    @property
    def key(self) -> FieldKey:
        owner = self.task or self.work
        return "" if owner is None else owner[1].uid, self.field


def place_words(words: Translations, draft: PlanDraft, path: Sequence[str | int]) -> str:
    """Say where something is: ``Work 1, Task 2, Query``."""
    at = _Located(draft, path)
    parts = [] if at.work is None else [_numbered(words, "plan.work", at.work)]
    parts += [] if at.task is None else [_numbered(words, "plan.task", at.task)]
    if at.field:
        parts.append(words(_LABELS[at.field]) if at.field in _LABELS else at.field)
    return ", ".join(parts)


def _numbered(words: Translations, key: str, found: tuple[int, Any]) -> str:
    number, draft = found
    shown = words(key, number=number + 1)
    return f"{shown} ({draft.name})" if draft.name else shown


def problem_words(words: Translations, wrong: WrongValue) -> str:
    """Say what is wrong, in the visitor's language where there are words for it."""
    return words.of("plan.wrong", wrong.kind) if wrong.kind in _TRANSLATED_KINDS else wrong.what


_TRANSLATED_KINDS: Final = ("missing", "string_too_short", "string_type")


def _unmark(field: ValidationElement[Any], *_: object) -> None:
    field.props["aria-invalid"] = "false"
    field.update()


def mark_fields(
    words: Translations,
    draft: PlanDraft,
    fields: Mapping[FieldKey, ValidationElement[Any]],
    wrong: Sequence[WrongValue],
) -> None:
    """Mark the fields that are wrong with what is wrong, remove the marks of the others, and focus the first."""
    messages: dict[FieldKey, str] = {}
    for one in wrong:
        messages.setdefault(_Located(draft, one.path).key, problem_words(words, one))
    there = {key: field for key, field in fields.items() if not field.is_deleted}
    for key, field in there.items():
        if field.error != messages.get(key):
            field.error = messages.get(key)
        if key in messages:
            field.props["aria-invalid"] = "true"
            field.on_value_change(partial(_unmark, field))
        elif field.props.get("aria-invalid"):
            _unmark(field)
    if first := next((there[key] for key in messages if key in there), None):
        first.run_method("focus")
