"""Templates as YAML files, and the changes that turn one plan into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import yaml

from kingdom.base.yamlfile import parse_yaml, read_text
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.plan import (
    AddTask,
    AddWork,
    Change,
    RemoveTask,
    RemoveWork,
    ReorderTasks,
    ReorderWorks,
    SetDetails,
    SetGitRefs,
    SetLandPlan,
    SetMcpServerRefs,
    UpdateTask,
    UpdateWork,
    definition_of,
)
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.domain.work import DEFAULT_ENGINE, DEFAULT_RETRIES, Task, Work
from kingdom.workflow.domain.workflow import (
    DEFAULT_ON_FAILURE,
    TaskDefinition,
    WorkDefinition,
    Workflow,
    WorkflowTemplate,
)
from kingdom.workflow.errors import NotModifiable
from kingdom.workflow.plan_model import LandFields, McpServerRefFields, TemplateFields, WorkFields, to_domain
from kingdom.workflow.template_file import KnownNames, McpSection, TemplateFile, WorkSection, without_empty

if TYPE_CHECKING:
    from kingdom.workflow.ports import WorkflowStore


@dataclass(frozen=True, slots=True)
class SourceIds:
    """The ids of repositories and MCP servers, by name."""

    repositories: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Mapping[str, str] = field(default_factory=dict)


def read_template_file(path: Path, known: KnownNames | None = None) -> TemplateFile:
    """Read and check a template's file; raise :class:`kingdom.base.yamlfile.YamlProblem` with each error's line."""
    return parse_template_file(read_text(path), str(path), known)


def parse_template_file(text: str, name: str, known: KnownNames | None = None) -> TemplateFile:
    """Parse and check the text of a template's file; ``name`` is shown before line numbers."""
    return parse_yaml(text, TemplateFile, name, (known or KnownNames()).context())


def load_template(
    path: Path, template_id: str, sources: SourceIds, known: KnownNames | None = None
) -> WorkflowTemplate:
    """Load the template of a file. Names that ``sources`` does not have are errors."""
    return parse_template(read_text(path), str(path), template_id, sources, known)


def parse_template(
    text: str, name: str, template_id: str, sources: SourceIds, known: KnownNames | None = None
) -> WorkflowTemplate:
    """Parse the text of a template's file; ``name`` is shown before line numbers."""
    engines = None if known is None else known.engines
    checked = parse_template_file(text, name, KnownNames(sources.repositories, sources.mcp_servers, engines))
    return WorkflowTemplate(
        id=template_id,
        name=checked.name,
        description=checked.description,
        works=tuple(_work_definition(work, checked, sources) for work in checked.works),
        git_refs=tuple(GitRef(sources.repositories[one.name], one.base) for one in checked.repositories),
        mcp_server_refs=_mcp_refs(checked.mcp, sources),
        on_failure=checked.on_failure,
        land=to_domain(checked.land),
    )


def _work_definition(work: WorkSection, template: TemplateFile, sources: SourceIds) -> WorkDefinition:
    engine = work.engine or template.engine
    model = work.model or (template.model if engine.name == template.engine.name else None)
    retries = template.retries if work.retries is None else work.retries
    return WorkDefinition(
        name=work.name,
        tasks=tuple(
            TaskDefinition(
                name=name,
                query=task.query,
                outline=tuple(task.report),
                retries=retries if task.retries is None else task.retries,
            )
            for name, task in zip(work.task_names, work.tasks, strict=True)
        ),
        engine=engine.name,
        model=model,
        engine_options=engine.options,
        mcp_server_refs=_mcp_refs(work.mcp, sources),
        after=tuple(work.after),
        merge=work.merge,
        pause_after=work.pause_after,
        continues=work.continues,
    )


def _mcp_refs(servers: list[McpSection], sources: SourceIds) -> tuple[McpServerRef, ...]:
    return tuple(McpServerRef(sources.mcp_servers[server.name], dict(server.env)) for server in servers)


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def write_template(
    template: WorkflowTemplate | TemplateFields, sources: SourceIds, *, engines_apart: bool = False
) -> str:
    """Return the text of a template's file, from which :func:`parse_template` reads the same template.

    A template that is not valid can be written, too. Works that all have the same engine share it; with
    ``engines_apart`` each Work names its own, so that a problem with it is one of the Work.
    """
    repositories = {git_id: name for name, git_id in sources.repositories.items()}
    servers = {server_id: name for name, server_id in sources.mcp_servers.items()}
    works: Sequence[WorkDefinition | WorkFields] = template.works
    engines = [_engine_section(work, None if engines_apart else DEFAULT_ENGINE) for work in works]
    shared = {} if engines_apart or any(engine != engines[0] for engine in engines) else engines[0]
    document = without_empty(
        {
            "name": template.name,
            "description": template.description,
            "repositories": [
                _shortened_form("name", {"name": repositories.get(ref.git_id, ref.git_id), "base": ref.base})
                for ref in template.git_refs
            ],
            "mcp": _mcp_section(template.mcp_server_refs, servers),
            **shared,
            "on_failure": None if template.on_failure == DEFAULT_ON_FAILURE else template.on_failure,
            "land": _land_section(template.land),
            "works": [
                _work_section(work, {} if shared else engine, servers)
                for work, engine in zip(works, engines, strict=True)
            ],
        }
    )
    return dump_yaml(document)


def _land_section(plan: LandPlan | LandFields | None) -> Any:
    """Return the key ``land`` of a template's file: what is not a default."""
    if plan is None:
        return None
    default = asdict(LandPlan())
    changed = {name: value for name, value in asdict(to_domain(plan)).items() if value != default[name]}
    return _shortened_form("how", {"how": plan.how, **changed})


def dump_yaml(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, with multi-line texts as blocks."""
    return yaml.dump(dict(document), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)


def _work_section(
    work: WorkDefinition | WorkFields, engine: Mapping[str, Any], servers: Mapping[str, str]
) -> dict[str, Any]:
    after = list(work.after)
    return without_empty(
        {
            "name": work.name,
            **engine,
            "after": after[0] if len(after) == 1 else after,
            "merge": work.merge or None,
            "pause_after": work.pause_after or None,
            "continues": work.continues,
            "mcp": _mcp_section(work.mcp_server_refs, servers),
            "tasks": [
                without_empty(
                    {
                        "name": task.name,
                        "query": task.query,
                        "report": list(task.outline),
                        "retries": None if task.retries == DEFAULT_RETRIES else task.retries,
                    }
                )
                for task in work.tasks
            ],
        }
    )


def _engine_section(work: WorkDefinition | WorkFields, default: str | None) -> dict[str, Any]:
    engine = _shortened_form("name", {"name": work.engine, "options": dict(work.engine_options)})
    return {"engine": None if engine == default else engine, "model": work.model}


def _mcp_section(refs: Sequence[McpServerRef | McpServerRefFields], servers: Mapping[str, str]) -> list[Any]:
    named = [{"name": servers.get(ref.mcp_server_id, ref.mcp_server_id), "env": dict(ref.env)} for ref in refs]
    return [_shortened_form("name", one) for one in named]


def _shortened_form(key: str, mapping: Mapping[str, Any]) -> Any:
    """Return only the value of ``key`` if the mapping has nothing else."""
    plain = without_empty(mapping)
    return plain[key] if plain.keys() == {key} else plain


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, indentless=False)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Quote what one YAML version reads as a number and another as text.
    style = "|" if "\n" in text else '"' if text[:1] in "+-.0123456789" else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


MAX_NAMES: Final = 100_000  # templates or repositories that are read at once


async def read_source_ids(store: WorkflowStore) -> SourceIds:
    """Return the ids of all repositories and MCP servers by name."""
    async with store.reading() as tx:
        return SourceIds(await tx.gits.ids_by_name(), await tx.mcp_servers.ids_by_name())


# ── changes between two plans ────────────────────────────────────────────────────────────────────────────────────────
# Works and tasks are identified by their names: a renamed one is another one.


DescribedChange: TypeAlias = tuple[str, Change]
N = TypeVar("N", Work, Task)


_ENGINE_FIELDS: Final = ("engine", "model", "engine_options")


def plan_changes(workflow: Workflow, works: Sequence[Work], wanted: WorkflowTemplate) -> list[DescribedChange]:
    """Return the changes that turn the plan of a workflow into ``wanted``, each with a text for people.

    Raises :class:`NotModifiable` for what can never be changed. Changes of works that have started are refused later,
    by :func:`kingdom.workflow.usecases.workflows.modify_workflow`.
    """
    if wanted.on_failure != workflow.on_failure:
        raise NotModifiable(f"on_failure of workflow {workflow.name} is {workflow.on_failure} and stays so")
    found: list[DescribedChange] = []
    if wanted.git_refs != workflow.git_refs:
        found.append(("other repositories", SetGitRefs(wanted.git_refs)))
    if wanted.mcp_server_refs != workflow.mcp_server_refs:
        found.append(("other MCP servers", SetMcpServerRefs(wanted.mcp_server_refs)))
    if (wanted.name, wanted.description) != (workflow.name, workflow.description):
        found.append((_details_text(workflow, wanted), SetDetails(wanted.name, wanted.description)))
    if wanted.land != workflow.land:
        how = "by hand" if wanted.land is None else f"as {wanted.land.how}"
        found.append((f"landed {how} at the end", SetLandPlan(wanted.land)))
    return [*found, *_work_changes(works, wanted.works)]


def _details_text(workflow: Workflow, wanted: WorkflowTemplate) -> str:
    renamed = [f"its name becomes {wanted.name}"] if wanted.name != workflow.name else []
    return ", ".join([*renamed, *(["another description"] if wanted.description != workflow.description else [])])


def _work_changes(works: Sequence[Work], wanted: Sequence[WorkDefinition]) -> Iterator[DescribedChange]:
    new = {definition.name: definition for definition in wanted}
    for work in works:
        if work.name not in new:
            yield f"work {work.name} is removed", RemoveWork(work.id)
    kept = [work for work in works if work.name in new]
    done = {work.name for work in works if work.status is WorkStatus.COMPLETED}
    for work in kept:
        definition = new[work.name]
        values = _changed_fields(definition_of(work), definition, leave="tasks")
        if work.status is WorkStatus.COMPLETED:  # what all works share may change for those to come
            shared = [new[name] for name in new if name not in done]
            values = {name: value for name, value in values.items() if not _is_shared(name, value, shared)}
        if values:
            yield f"work {work.name}: another {_listed(values)}", UpdateWork(work.id, values)
        yield from _task_changes(work, definition.tasks)
    yield from _work_order_changes(kept, list(new))
    old = {work.name for work in works}
    for at, definition in enumerate(wanted):
        if definition.name not in old:
            yield f"work {definition.name} is added", AddWork(definition, at)


def _is_shared(name: str, value: object, others: Sequence[WorkDefinition]) -> bool:
    """Return whether a setting of the engine is that of other works too, as one of the whole plan is."""
    return name in _ENGINE_FIELDS and any(getattr(other, name) == value for other in others)


def _work_order_changes(kept: Sequence[Work], names: Sequence[str]) -> Iterator[DescribedChange]:
    ordered = _sorted_by_name(kept, names)
    if ordered == list(kept):
        return
    begun = max((at + 1 for at, work in enumerate(kept) if work.status is not WorkStatus.PENDING), default=0)
    if ordered[:begun] != list(kept[:begun]):
        stay = ", ".join(work.name for work in kept[:begun])
        raise NotModifiable(f"works up to the last one that has begun stay in their order: {stay}")
    order = ", ".join(work.name for work in ordered)
    yield f"works in another order: {order}", ReorderWorks(tuple(work.id for work in ordered[begun:]))


def _task_changes(work: Work, wanted: Sequence[TaskDefinition]) -> Iterator[DescribedChange]:
    new = {definition.name: definition for definition in wanted}
    before = {task.name: definition for task, definition in zip(work.tasks, definition_of(work).tasks, strict=True)}
    for task in work.tasks:
        if task.name not in new:
            yield f"work {work.name}: task {task.name} is removed", RemoveTask(task.id)
        elif values := _changed_fields(before[task.name], new[task.name]):
            yield f"work {work.name}: task {task.name}: another {_listed(values)}", UpdateTask(task.id, values)
    kept = [task for task in work.tasks if task.name in new]
    ordered = _sorted_by_name(kept, list(new))
    if ordered != kept:
        waiting = tuple(task.id for task in ordered if task.status is TaskStatus.PENDING)
        begun = [task.name for task in kept if task.id not in waiting]
        if [task.name for task in ordered[: len(begun)]] != begun:
            names = ", ".join(begun)
            raise NotModifiable(f"tasks of work {work.name} that have begun stay first, in their order: {names}")
        order = ", ".join(task.name for task in ordered)
        yield f"work {work.name}: tasks in another order: {order}", ReorderTasks(work.id, waiting)
    for at, definition in enumerate(wanted):
        if definition.name not in before:
            yield f"work {work.name}: task {definition.name} is added", AddTask(work.id, definition, at)


def _sorted_by_name(items: Sequence[N], names: Sequence[str]) -> list[N]:
    return sorted(items, key=lambda item: names.index(item.name))


def _changed_fields(before: Any, after: Any, leave: str = "") -> dict[str, Any]:
    names = [field.name for field in fields(before) if field.name != leave]
    return {name: getattr(after, name) for name in names if getattr(before, name) != getattr(after, name)}


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(name.replace("_", " ") for name in values)
