"""What people read of a landed workflow: names of branches, messages of commits, titles and texts of pull requests.

The title, the branch and the text are templates with these variables:

=============== =====================================================================================================
variable        value
=============== =====================================================================================================
``workflow``    id, name, description
``issue``       ``key``, and the fields of the workflow's variable ``issue``
``works``       those with a result: name, ``summary`` (the first line of the last answer), ``text`` (the reports of
                its tasks, or else their answers)
``cost``        US dollars, such as ``0.42``; empty if nothing is known
``runs``        how many runs of agents it took
=============== =====================================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kingdom.agents.untrusted import clean, clean_line, cut_middle
from kingdom.workflow.adapters.workspaces import read_report, slug
from kingdom.workflow.domain.statuses import ReportStatus, WorkStatus
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops import Commit
    from kingdom.workflow.agent_records import WorkflowCost
    from kingdom.workflow.domain.landing import LandPlan
    from kingdom.workflow.domain.work import Report, Work
    from kingdom.workflow.domain.workflow import Workflow

_MAX_SUBJECT_CHARS: Final = 72
_MAX_TITLE_CHARS: Final = 200
_MAX_MESSAGE_CHARS: Final = 4000
_MAX_BODY_CHARS: Final = 60_000  # GitHub takes 65,536
_MARKUP: Final = re.compile(r"^[#>*\-\s]+|[*_`]+(?=\s|$)|(?<=\s)[*_`]+|^[*_`]+")
_DEFAULT_BRANCH: Final = "kingdom/{% if issue.key %}{{ issue.key }}-{% endif %}{{ workflow.name }}"
_DEFAULT_TITLE: Final = "{% if issue.key %}{{ issue.key }}: {% endif %}{{ issue.title or topic }}"
_DEFAULT_BODY: Final = """\
{% if workflow.description and workflow.description != topic %}{{ workflow.description }}

{% endif %}{% for work in works %}{% if works | length > 1 %}## {{ work.name }}

{% endif %}{{ work.text }}

{% endfor %}---
Workflow `{{ workflow.name }}` (`{{ workflow.id }}`){% if issue.key %} for {{ issue.key }}{% endif %}: \
{{ works | length }} work{{ "s" if works | length != 1 }}, {{ runs }} agent run{{ "s" if runs != 1 }}\
{% if cost %}, ${{ cost }}{% endif %}. Each work ends in a checkpoint that can be gone back to.
"""
_environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)


class LandTextInvalid(WorkflowError, ValueError):
    """A template of a title, a text or a branch that cannot be rendered."""

    code = "TPL_LAND"


def check_land_template(text: str) -> None:
    """Raise :class:`LandTextInvalid` if a text is no template."""
    try:
        _environment.parse(text)
    except TemplateError as error:
        raise LandTextInvalid(f"it is not a template: {error}") from None


@dataclass(frozen=True, slots=True)
class WorkText:
    """What a Work left to read."""

    work: Work
    text: str

    @property
    def summary(self) -> str:
        """The first line of the agent's last answer, or else of its report, as plain text."""
        answers = [task.response for task in reversed(self.work.tasks) if task.response]
        for line in "\n".join((*answers, self.text)).splitlines():
            plain = clean_line(_MARKUP.sub("", line).strip(), _MAX_MESSAGE_CHARS)
            if plain and not line.lstrip().startswith("#"):  # a heading says nothing yet
                return plain
        return self.work.name


class LandingTexts:
    """The texts of one workflow."""

    def __init__(
        self, workflow: Workflow, works: Sequence[Work], reports: Sequence[Report], cost: WorkflowCost
    ) -> None:
        self._workflow = workflow
        done = [work for work in works if work.status is WorkStatus.COMPLETED]
        self._works = {work.id: WorkText(work, _text_of(work, reports)) for work in done}
        self._cost = cost

    def branch(self, plan: LandPlan) -> str:
        """Return the name of the branch: the parts of a path of letters, digits, ``_`` and ``-``."""
        named = self._render(plan.branch or _DEFAULT_BRANCH, "branch")
        return "/".join(slug(part) for part in named.strip().split("/") if part.strip())

    def title(self, plan: LandPlan) -> str:
        """Return the title of the pull request, in one line."""
        return clean_line(self._render(plan.title or _DEFAULT_TITLE, "title"), _MAX_TITLE_CHARS) or self._workflow.name

    def body(self, plan: LandPlan) -> str:
        """Return the text of the pull request."""
        return cut_middle(clean(self._render(plan.body or _DEFAULT_BODY, "body")), _MAX_BODY_CHARS)

    def message(self, commits: Sequence[Commit], co_authors: Sequence[str]) -> str:
        """Return the message of a commit that takes the place of these: what the agent wrote, or else its report."""
        trailers = {name: value for commit in commits for name, value in commit.trailers.items()}
        own = [commit for commit in commits if not commit.trailers]
        found = self._works.get(trailers.get("Kingdom-Work", ""))
        if len(own) == 1:
            subject, body = own[0].title, own[0].message.partition("\n")[2].strip()
        elif found is not None:
            subject, body = found.summary, found.text
        else:
            subject, body = commits[-1].title, ""
        if len(subject) > _MAX_SUBJECT_CHARS:
            body = body or subject
            subject = found.work.name if found is not None else f"{subject[: _MAX_SUBJECT_CHARS - 1]}…"
        if body.strip() in (subject, f"{subject}."):
            body = ""
        key = self._workflow.issue_key
        lines = [*([f"Refs: {clean_line(key)}"] if key else []), *(f"Co-authored-by: {one}" for one in co_authors)]
        parts = [subject, cut_middle(clean(body).strip(), _MAX_MESSAGE_CHARS), "\n".join(lines)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def message_for_all(self, plan: LandPlan, co_authors: Sequence[str]) -> str:
        """Return the message of one commit for everything."""
        title = self.title(plan)
        texts = [f"{one.work.name}: {one.summary}" for one in self._works.values()] if len(self._works) > 1 else []
        single = [one.text for one in self._works.values()] if len(self._works) == 1 else []
        lines = "\n".join(f"Co-authored-by: {one}" for one in co_authors)
        parts = [title, "\n".join(f"- {text}" for text in texts), *single, lines]
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"

    def _render(self, template: str, what: str) -> str:
        try:
            return _environment.from_string(template).render(self._variables())
        except TemplateError as error:
            raise LandTextInvalid(
                f"the {what} to land workflow {self._workflow.name} cannot be made: {error}"
            ) from None

    def _variables(self) -> dict[str, Any]:
        workflow = self._workflow
        issue = workflow.variables.get("issue")
        first_line = workflow.description.strip().partition("\n")[0]
        return {
            "workflow": {"id": workflow.id, "name": workflow.name, "description": workflow.description.strip()},
            "topic": first_line or workflow.name,
            "issue": {"title": "", **(issue if isinstance(issue, dict) else {}), "key": workflow.issue_key or ""},
            "works": [
                {"name": one.work.name, "summary": one.summary, "text": one.text} for one in self._works.values()
            ],
            "cost": f"{self._cost.cost_usd:.2f}" if self._cost.cost_usd else "",
            "runs": self._cost.runs,
        }


def _text_of(work: Work, reports: Sequence[Report]) -> str:
    """Return the reports of a Work, or else the agent's answers."""
    paths = {report.id: report.file_path for report in reports if report.status is ReportStatus.COMPLETED}
    texts = []
    for task in work.tasks:
        path = paths.get(task.report_id or "")
        text = _read(path) if path else ""
        texts.append(text.strip() or (task.response or "").strip())
    return clean("\n\n".join(text for text in texts if text))


def _read(path: str) -> str:
    try:
        return read_report(Path(path))
    except OSError:
        return ""  # it was removed since: the answer says what was done
