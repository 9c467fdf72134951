"""The types of templates. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from kingdom.client.models.shared import (
    GitRefBody,
    GitRefFields,
    McpServerRefBody,
    McpServerRefFields,
    WorkBody,
    WorkFields,
)


class ConvertBody(TypedDict):
    """A template in one of its forms."""

    yaml: NotRequired[str | None]
    fields: NotRequired[TemplateBody | None]


class Converted(TypedDict):
    """A template in both forms."""

    fields: TemplateFields
    yaml: str


class TemplateBody(TypedDict):
    """A plan with a name."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefBody]]
    mcpServerRefs: NotRequired[list[McpServerRefBody]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    works: list[WorkBody]


class TemplateFields(TypedDict):
    """A plan with a name."""

    name: str
    description: NotRequired[str]
    gitRefs: NotRequired[list[GitRefFields]]
    mcpServerRefs: NotRequired[list[McpServerRefFields]]
    onFailure: NotRequired[Literal["pause", "fail"]]
    works: list[WorkFields]


class TemplateSummary(TypedDict):
    """What a list has of a template."""

    id: str
    name: str
    description: str
    works: list[str]
    tasks: int


class YamlBody(TypedDict):
    """A template as the text of a YAML file."""

    yaml: str
