"""Templates from files into the store."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kingdom.workflow.domain.template import WorkflowTemplate
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.template_file import Known


async def keep(parts: Parts, file: Path, *, replace: bool) -> WorkflowTemplate:
    """Keep the template of a file; with ``replace`` in the place of the one of that name."""
    from kingdom.workflow.sources import MOST, read_sources
    from kingdom.workflow.templates import load_template
    from kingdom.workflow.usecases.create_workflow_template import CreateWorkflowTemplate
    from kingdom.workflow.usecases.update_workflow_template import UpdateWorkflowTemplate

    template = load_template(file, parts.ids.new("tpl"), await read_sources(parts.store), known_engines())
    async with parts.store.reading() as tx:
        before = next((one for one in await tx.templates.list(limit=MOST) if one.name == template.name), None)
    if before is None:
        await CreateWorkflowTemplate(parts).execute(template)
    elif replace:
        template.id, template.version = before.id, before.version
        if template != before:
            await UpdateWorkflowTemplate(parts).execute(template)
    else:
        raise output.Failure(
            "ALREADY_THERE", f"there is a template {template.name} ({before.id}): --replace puts this one in its place"
        )
    return template


def known_engines() -> Known:
    """The engines of this machine: a template that names another is wrong."""
    from kingdom.agents.engines import default_engines
    from kingdom.workflow.template_file import Known

    return Known(engines=frozenset(default_engines()))


@contextlib.contextmanager
def problems_told(*, json: bool) -> Iterator[None]:
    """Every problem of a file on a line of its own, for people; then a last word."""
    try:
        yield
    except output.Failure as failure:
        problems = str(failure).splitlines()
        if json or failure.code != "INVALID_YAML" or len(problems) == 1:
            raise
        for problem in problems:
            output.say(problem)
        raise output.Failure(failure.code, f"{len(problems)} problems: nothing was kept") from failure
