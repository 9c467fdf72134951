"""From a commission to a workflow: its template, its repository, and the workflow itself, made once."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kingdom.workflow.domain.errors import NotFound
from kingdom.workflow.domain.sources import GitRef
from kingdom.workflow.templates import Sources, load_template, read_file
from kingdom.workflow.usecases.create_git import CreateGit
from kingdom.workflow.usecases.create_workflow import CreateWorkflow
from kingdom.workflow.usecases.create_workflow_template import CreateWorkflowTemplate
from kingdom.workflow.usecases.update_workflow_template import UpdateWorkflowTemplate

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.workflow.domain.template import WorkflowTemplate
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.playing.commission import Commission
    from kingdom.workflow.playing.record import Record

_MOST: Final = 100_000  # of one kind: names are compared with all of them


async def find_or_create(parts: Parts, commission: Commission, record: Record) -> str:
    """The id of the workflow of a commission. Its id is written down before it is made, so there is never a second."""
    if record.workflow_id is None:
        record.workflow_id = parts.ids.new("wf")
        record.save()
    async with parts.store.reading() as tx:
        if await tx.workflows.find(record.workflow_id) is not None:
            return record.workflow_id
    template = await _template(parts, commission)
    return await CreateWorkflow(parts).execute(
        template.id,
        workflow_id=record.workflow_id,
        name=f"{template.name} {commission.issue_key or commission.key}",
        issue_key=commission.issue_key,
        variables=commission.variables,
        git_refs=await _git_refs(parts, commission, template),
    )


async def _template(parts: Parts, commission: Commission) -> WorkflowTemplate:
    """The template of that name: of the general's own file, else of the store."""
    file = commission.template_file
    if file is not None and file.is_file() and read_file(file).name == commission.template:
        return await _keep(parts, file)
    async with parts.store.reading() as tx:
        named = [one for one in await tx.templates.list(limit=_MOST) if one.name == commission.template]
    if not named:
        beside = f", nor in {file}" if file is not None else ""
        raise NotFound(
            f"there is no workflow template {commission.template!r:.100} in {commission.home}{beside}: "
            "kingdom template add FILE keeps one"
        )
    return named[0]


async def _keep(parts: Parts, file: Path) -> WorkflowTemplate:
    """Keep the template of a file in the store, in the place of the one of that name."""
    async with parts.store.reading() as tx:
        gits, servers = await tx.gits.list(limit=_MOST), await tx.mcp_servers.list(limit=_MOST)
        before = {one.name: one for one in await tx.templates.list(limit=_MOST)}
    sources = Sources({git.name: git.id for git in gits}, {server.name: server.id for server in servers})
    template = load_template(file, parts.ids.new("tpl"), sources)
    known = before.get(template.name)
    if known is None:
        await CreateWorkflowTemplate(parts).execute(template)
    else:
        template.id, template.version = known.id, known.version
        if template != known:
            await UpdateWorkflowTemplate(parts).execute(template)
    return template


async def _git_refs(parts: Parts, commission: Commission, template: WorkflowTemplate) -> list[GitRef]:
    """The repository of the task first, then those that the template names."""
    if commission.repository is None:
        return list(template.git_refs)
    name, url = commission.repository
    async with parts.store.reading() as tx:
        gits = await tx.gits.list(limit=_MOST)
    git_id = next((git.id for git in gits if git.url == url), None)
    if git_id is None:
        git_id = await CreateGit(parts).execute(_free(name, {git.name for git in gits}), url)
    own = next((ref for ref in template.git_refs if ref.git_id == git_id), GitRef(git_id))
    return [own, *(ref for ref in template.git_refs if ref.git_id != git_id)]


def _free(name: str, taken: set[str]) -> str:
    """The name, or one like it when another repository has it."""
    candidates = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)
