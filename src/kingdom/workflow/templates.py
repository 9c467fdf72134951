"""Templates as YAML files that people write, and templates written out as such files again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kingdom.workflow.domain.sources import GitRef, McpServerRef
from kingdom.workflow.domain.template import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.template_file import (
    Known,
    McpSection,
    TemplateFile,
    WorkSection,
    documented,
)
from kingdom.yamlfile import parse_yaml, read_text

# What a file need not say: the defaults of TemplateFile.
_RETRIES: Final = 1
_PAUSE: Final = "pause"
_ENGINE: Final = "claude"


@dataclass(frozen=True, slots=True)
class Sources:
    """The repositories and MCP servers there are: the id of each name."""

    repositories: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Mapping[str, str] = field(default_factory=dict)


def read_file(path: Path, known: Known | None = None) -> TemplateFile:
    """Read and check a template's file; raises :class:`kingdom.yamlfile.YamlProblem` with every mistake's line."""
    return parse_file(read_text(path), str(path), known)


def parse_file(text: str, name: str, known: Known | None = None) -> TemplateFile:
    """The same for text that is already there; ``name`` stands before the line numbers."""
    return parse_yaml(text, TemplateFile, name, (known or Known()).context())


def load_template(path: Path, template_id: str, sources: Sources, known: Known | None = None) -> WorkflowTemplate:
    """The template of a file. Names that ``sources`` does not have are mistakes of the file."""
    return parse_template(read_text(path), str(path), template_id, sources, known)


def parse_template(
    text: str, name: str, template_id: str, sources: Sources, known: Known | None = None
) -> WorkflowTemplate:
    """The same for text that is already there; ``name`` stands before the line numbers."""
    engines = None if known is None else known.engines
    checked = parse_file(text, name, Known(sources.repositories, sources.mcp_servers, engines))
    return WorkflowTemplate(
        id=template_id,
        name=checked.name,
        description=checked.description,
        works=tuple(_work(work, checked, sources) for work in checked.works),
        git_refs=tuple(GitRef(sources.repositories[one.name], one.base) for one in checked.repositories),
        mcp_server_refs=_mcp_refs(checked.mcp, sources),
        on_failure=checked.on_failure,
    )


def _work(work: WorkSection, template: TemplateFile, sources: Sources) -> WorkDefinition:
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
    )


def _mcp_refs(servers: list[McpSection], sources: Sources) -> tuple[McpServerRef, ...]:
    return tuple(McpServerRef(sources.mcp_servers[server.name], dict(server.env)) for server in servers)


# ── and back ──────────────────────────────────────────────────────────────────────────────────────────────────────


def write_template(template: WorkflowTemplate, sources: Sources) -> str:
    """The file of a template: what :func:`parse_template` reads the same template from."""
    repositories = {git_id: name for name, git_id in sources.repositories.items()}
    servers = {server_id: name for name, server_id in sources.mcp_servers.items()}
    first = template.works[0]
    shared = all(_played_by(work) == _played_by(first) for work in template.works)
    document = documented(
        {
            "name": template.name,
            "description": template.description,
            "repositories": [
                _short("name", {"name": repositories.get(ref.git_id, ref.git_id), "base": ref.base})
                for ref in template.git_refs
            ],
            "mcp": _mcp(template.mcp_server_refs, servers),
            **(_engine(first) if shared else {}),
            "on_failure": None if template.on_failure == _PAUSE else template.on_failure,
            "works": [_work_section(work, servers, with_engine=not shared) for work in template.works],
        }
    )
    return written(document)


def written(document: Mapping[str, Any]) -> str:
    """A document as the text of a file: queries as blocks, as a person writes them."""
    return yaml.dump(dict(document), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)


def _work_section(work: WorkDefinition, servers: Mapping[str, str], *, with_engine: bool) -> dict[str, Any]:
    after = list(work.after)
    return documented(
        {
            "name": work.name,
            **(_engine(work) if with_engine else {}),
            "after": after[0] if len(after) == 1 else after,
            "merge": work.merge or None,
            "pause_after": work.pause_after or None,
            "mcp": _mcp(work.mcp_server_refs, servers),
            "tasks": [
                documented(
                    {
                        "name": task.name,
                        "query": task.query,
                        "report": list(task.outline),
                        "retries": None if task.retries == _RETRIES else task.retries,
                    }
                )
                for task in work.tasks
            ],
        }
    )


def _played_by(work: WorkDefinition) -> tuple[object, ...]:
    return work.engine, work.model, dict(work.engine_options)


def _engine(work: WorkDefinition) -> dict[str, Any]:
    engine = _short("name", {"name": work.engine, "options": dict(work.engine_options)})
    return {"engine": None if engine == _ENGINE else engine, "model": work.model}


def _mcp(refs: tuple[McpServerRef, ...], servers: Mapping[str, str]) -> list[Any]:
    named = [{"name": servers.get(ref.mcp_server_id, ref.mcp_server_id), "env": dict(ref.env)} for ref in refs]
    return [_short("name", one) for one in named]


def _short(key: str, mapping: Mapping[str, Any]) -> Any:
    """Only the value of the key when nothing else is there."""
    plain = documented(mapping)
    return plain[key] if plain.keys() == {key} else plain


class _Dumper(yaml.SafeDumper):
    """Queries as blocks, as a person writes them; nothing as an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, indentless=False)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # What may be read as a number by one version of YAML and as text by another is quoted.
    style = "|" if "\n" in text else '"' if text[:1] in "+-.0123456789" else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
