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
    from kingdom.workflow.ports import Store
    from kingdom.workflow.template_file import Known
    from kingdom.workflow.templates import Sources

MOST = 100_000  # of one kind: names are compared with all of them


async def keep(parts: Parts, file: Path, *, replace: bool) -> WorkflowTemplate:
    """Keep the template of a file; with ``replace`` in the place of the one of that name."""
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


async def read_sources(store: Store) -> Sources:
    """The names of all repositories and MCP servers there are."""
    from kingdom.workflow.templates import Sources

    async with store.reading() as tx:
        gits = await tx.gits.list(limit=MOST)
        servers = await tx.mcp_servers.list(limit=MOST)
    return Sources({git.name: git.id for git in gits}, {server.name: server.id for server in servers})


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
