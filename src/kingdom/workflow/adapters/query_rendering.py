"""Render queries with their variables; see :mod:`kingdom.workflow.adapters.queries`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import StrictUndefined, TemplateError, TemplateRuntimeError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from kingdom.agents.untrusted import ANSWER, OUTSIDE, REPORT, clean, cut_middle, fence
from kingdom.workflow.adapters.queries import QueryInvalid
from kingdom.workflow.adapters.workspaces import read_report
from kingdom.workflow.domain.statuses import ReportStatus, TaskStatus
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.domain.workflow import Workflow

_MAX_QUERY_CHARS: Final = 256 * 1024  # of a query with its variables
_MAX_VALUE_CHARS: Final = 64 * 1024  # of one variable
_MAX_INLINE_CHARS: Final = 200  # of a variable that is not fenced


class _Issue(dict[str, Any]):
    """The fields of the issue."""


class _VariableMissing(UndefinedError):
    """A query uses a variable, or a field of one, that its workflow does not have."""


class _UnknownVariable(StrictUndefined):
    """An unknown variable, with a message that says where its value comes from."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: type[TemplateRuntimeError] = UndefinedError,
    ) -> None:
        if exc is UndefinedError and (obj is missing or isinstance(obj, dict)):
            exc = _VariableMissing
        super().__init__(hint, obj, name, exc)

    @property
    def _undefined_message(self) -> str:
        if isinstance(self._undefined_obj, _Issue):
            name = self._undefined_name
            given = "--issue KEY" if name == "key" else f"--var issue.{name}=TEXT"
            return f"the workflow has no issue.{name} ({given})"
        return super()._undefined_message


_environment = ImmutableSandboxedEnvironment(undefined=_UnknownVariable, autoescape=False, keep_trailing_newline=True)


def unknown_variable(workflow: Workflow, works: Sequence[Work], work: Work, task: Task) -> str | None:
    """Return which variable a query lacks. Reports and answers are not there yet: their names are checked."""
    tasks = {f"{work.name}/{task.name}": task for work in works for task in work.tasks}
    values = variables(workflow, works, [], work, task) | {
        "reports": _Texts("report", {name: _to_come for name, task in tasks.items() if task.outline}),
        "answers": _Texts("answer", dict.fromkeys(tasks, _to_come)),
    }
    where = f"task {work.name}/{task.name}"
    try:
        _environment.from_string(task.query).render(values)
    except QueryInvalid as error:
        return f"{where}: {error}"
    except _VariableMissing as error:
        return str(_invalid(where, error, values))
    except Exception:  # noqa: BLE001 - it depends on texts that are not there yet
        return None
    return None


def _to_come() -> str:
    return "(to come)"


def check_query(query: str, where: str) -> None:
    """Raise :class:`QueryInvalid` if a query is not a valid template."""
    try:
        _environment.parse(query)
    except TemplateError as error:
        raise _invalid(where, error) from None


def render(query: str, values: Mapping[str, Any], where: str) -> str:
    """Return a query with these variables; raise :class:`QueryInvalid`."""
    try:
        text = _environment.from_string(query).render(values)
    except WorkflowError as error:
        raise QueryInvalid(f"{where}: {error}") from None
    except TemplateError as error:
        raise _invalid(where, error, values) from None
    except Exception as error:  # noqa: BLE001 - an expression can raise anything; the query is to blame
        raise QueryInvalid(f"{where}: its query cannot be made: {type(error).__name__}: {error}") from None
    if len(text) > _MAX_QUERY_CHARS:
        raise QueryInvalid(
            f"{where}: its query has {len(text)} characters with its variables, {_MAX_QUERY_CHARS} may be sent"
        )
    return text


def variables(
    workflow: Workflow, works: Sequence[Work], reports: Sequence[Report], work: Work, task: Task
) -> dict[str, Any]:
    """Return the variables of a task's query."""
    own = _as_value(dict(workflow.variables))
    issue = own.get("issue")
    known = _Issue(issue if isinstance(issue, dict) else {})
    if workflow.issue_key is not None:
        known["key"] = _as_value(workflow.issue_key)
    return {
        **own,
        "issue": known,
        "workflow": _as_value({"id": workflow.id, "name": workflow.name, "description": workflow.description}),
        "work": _as_value({"name": work.name, "attempt": work.attempt}),
        "task": _as_value({"name": task.name, "attempt": task.attempt}),
        "reports": _Texts("report", _reports(works, reports)),
        "answers": _Texts("answer", _answers(works)),
    }


class _Texts(Mapping[str, str]):
    """Texts by ``work/task``, made on access."""

    def __init__(self, what: str, texts: Mapping[str, Callable[[], str]]) -> None:
        self._what = what
        self._texts = texts

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            there = ", ".join(sorted(self._texts)) or "none yet"
            raise QueryInvalid(f"its query uses the {self._what} {name!r:.100}, and there is no such: {there}")
        return self._texts[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _reports(works: Sequence[Work], reports: Sequence[Report]) -> dict[str, Callable[[], str]]:
    names = {task.id: f"{work.name}/{task.name}" for work in works for task in work.tasks}
    return {
        names[report.task_id]: _report_reader(report.file_path)
        for report in reports
        if report.status is ReportStatus.COMPLETED and report.file_path and report.task_id in names
    }


def _report_reader(path: str) -> Callable[[], str]:
    def read() -> str:
        try:
            return _fenced(read_report(Path(path)), REPORT)
        except OSError as error:
            raise QueryInvalid(f"the report {path} cannot be read: {error.strerror}") from None

    return read


def _answers(works: Sequence[Work]) -> dict[str, Callable[[], str]]:
    return {
        f"{work.name}/{task.name}": _answer_reader(task.response)
        for work in works
        for task in work.tasks
        if task.status is TaskStatus.COMPLETED and task.response is not None
    }


def _answer_reader(response: str) -> Callable[[], str]:
    return lambda: _fenced(response, ANSWER)


def _fenced(text: str, label: str) -> str:
    return fence(cut_middle(clean(text), _MAX_VALUE_CHARS), label)


def _as_value(value: Any) -> Any:
    """Return a value as it may be inserted into a query."""
    if isinstance(value, str):
        text = clean(value).strip()
        return text if len(text) <= _MAX_INLINE_CHARS and "\n" not in text else _fenced(text, OUTSIDE)
    if isinstance(value, Mapping):
        return {str(key): _as_value(item) for key, item in value.items()}
    return [_as_value(item) for item in value] if isinstance(value, list | tuple) else value


def _invalid(where: str, error: TemplateError, values: Mapping[str, Any] | None = None) -> QueryInvalid:
    line = getattr(error, "lineno", None)
    known = f"; there are: {', '.join(sorted(values))}" if values else ""
    at = f", line {line}" if line else ""
    return QueryInvalid(f"{where}: its query{at}: {error.message or type(error).__name__}{known}")
