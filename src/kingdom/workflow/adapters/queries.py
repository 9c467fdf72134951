"""Variables in queries: ``Fix {{ issue.key }} as planned: {{ reports["plan/look"] }}``.

====================== ===============================================================================================
variable               value
====================== ===============================================================================================
``issue``              ``key`` (the workflow's issue key), and the fields of the workflow's variable ``issue``
``workflow``           id, name, description
``work``, ``task``     name, attempt
``reports["w/t"]``     the report of task t of work w, fenced as data
``answers["w/t"]``     the agent's answer to task t of work w, fenced as data
any other              from the workflow's variables
====================== ===============================================================================================

A query is a template; the value of a variable never is: markers in it have no effect. A value of one short line is
inserted as it is, any other fenced as data. An unknown variable is an error, not an empty text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import WorkflowStore

_WHOLE_PLAN_VARIABLES: Final = ("reports", "answers")  # all works are read for these only
_MARKERS: Final = ("{{", "{%", "{#")
_MARKER_START: Final = re.compile(r"\{(?=[{%#])")


class QueryInvalid(WorkflowError):
    """A query that cannot be rendered: its template is invalid, or it uses an unknown variable."""

    code = "TPL_QUERY"


class QueryTemplates:
    """Renders queries; see :class:`kingdom.workflow.ports.QueryRenderer`."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store

    async def text(self, workflow: Workflow, work: Work, task: Task) -> str:
        """Return the query of a task as the agent gets it; raise :class:`QueryInvalid`."""
        if not _has_variables(task.query):
            return task.query
        works: Sequence[Work] = ()
        reports: Sequence[Report] = ()
        if any(name in task.query for name in _WHOLE_PLAN_VARIABLES):
            async with self._store.reading() as tx:
                works = await tx.works.of_workflow(workflow.id)
                reports = await tx.reports.of_workflow(workflow.id)
        from kingdom.workflow.adapters.query_rendering import render, variables  # brings jinja2 with it

        return render(task.query, variables(workflow, works, reports, work, task), f"task {work.name}/{task.name}")

    def check(self, workflow: Workflow, works: Sequence[Work], changed: Sequence[Work]) -> None:
        """Raise :class:`QueryInvalid` if queries of ``changed`` use variables that they cannot have in this plan."""
        asking = [(work, task) for work in changed for task in work.tasks if _has_variables(task.query)]
        if not asking:
            return
        from kingdom.workflow.adapters.query_rendering import unknown_variable

        problems = [
            problem for work, task in asking if (problem := unknown_variable(workflow, works, work, task)) is not None
        ]
        if problems:
            raise QueryInvalid("; ".join(problems))


def _has_variables(query: str) -> bool:
    return any(marker in query for marker in _MARKERS)


def literal_query(text: str) -> str:
    """Return a query that is rendered as exactly this text, whatever markers it has."""
    return _MARKER_START.sub("{{ '{' }}", text)
