"""Pages that are made from the program: the Python interface from its docstrings, and the OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# The public interfaces, and their pages.
MODULES = {
    "kingdom.bus": "reference/python/bus",
    "kingdom.agents.port": "reference/python/agents-port",
    "kingdom.workflow": "reference/python/workflow",
    "kingdom.client": "reference/python/client",
}
# Modules whose interface is that of other modules below them.
_BELOW = {
    "kingdom.workflow": ("home", "engine", "commands", "overview", "templates", "errors"),
}
OPENAPI = "reference/openapi"
_METHODS = ("get", "post", "put", "patch", "delete")


def write_modules(folder: Path) -> None:
    """Write a page for each module, which mkdocstrings fills."""
    for module, page in MODULES.items():
        below = [f"::: {module}.{name}\n" for name in _BELOW.get(module, ())]
        path = folder / f"{page}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = f"::: {module}\n    options: {{show_root_heading: false, show_root_toc_entry: false}}\n"
        path.write_text("\n".join([f"# {module}\n", own, *below]))


def write_openapi(folder: Path, document: dict[str, Any]) -> None:
    """Write the document itself, and a page with every operation, its parameters, bodies and responses."""
    (folder / f"{OPENAPI}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    parts = [
        "# OpenAPI",
        "",
        f"Every operation of [the HTTP API](api.md), from its [OpenAPI document]({Path(OPENAPI).name}.json).",
        "",
    ]
    for tag in document["tags"]:
        parts += [f"## {tag['name'].capitalize()}", ""]
        for path, methods in document["paths"].items():
            for method in _METHODS:
                operation = methods.get(method)
                if operation is not None and operation["tags"][0] == tag["name"]:
                    parts += _operation(document, path, method, operation)
    (folder / f"{OPENAPI}.md").write_text("\n".join(parts))


def _operation(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> list[str]:
    lines = [f"### {operation['summary']}", "", f"`{method.upper()} {path}`, `{operation['operationId']}`", ""]
    if description := operation.get("description"):
        lines += [_text(description), ""]
    if parameters := operation.get("parameters"):
        lines += ["| Parameter | in | |", "|---|---|---|"]
        for found in (_resolved(document, parameter) for parameter in parameters):
            required = ", required" if found.get("required") else ""
            words = _cell(found.get("description", ""))
            lines.append(f"| `{found['name']}` | {found['in']}{required} | {words} |")
        lines.append("")
    if body := operation.get("requestBody"):
        lines += _body(document, body["content"])
    lines += ["| Response | |", "|---|---|"]
    for code, found in operation["responses"].items():
        lines.append(f"| {code} | {_cell(_resolved(document, found)['description'])} |")
    return [*lines, ""]


def _body(document: dict[str, Any], content: dict[str, Any]) -> list[str]:
    lines = []
    for kind, found in content.items():
        schema = _resolved(document, found.get("schema", {}))
        lines += [f"Body: `{kind}`", ""]
        if fields := schema.get("properties"):
            required = schema.get("required", ())
            lines += ["| Field | type | |", "|---|---|---|"]
            for name, field in fields.items():
                mark = " (required)" if name in required else ""
                lines.append(f"| `{name}`{mark} | {_type(document, field)} | {_cell(field.get('description', ''))} |")
            lines.append("")
    return lines


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if name := schema.get("$ref"):
        found = document
        for key in name.removeprefix("#/").split("/"):
            found = found[key]
        return found
    return schema


def _type(document: dict[str, Any], schema: dict[str, Any]) -> str:
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(document, choice) for choice in choices))
    if name := schema.get("$ref"):
        return str(name.rpartition("/")[2])
    if schema.get("type") == "array":
        return f"list of {_type(document, schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return _text(" ".join(text.split())).replace("|", "\\|")


def _text(text: str) -> str:
    return text.replace("<", "&lt;")
