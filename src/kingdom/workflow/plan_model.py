"""The models of a plan in requests and responses, and the rules that files share with them.

The fields are those of the domain's classes, so that :func:`to_domain` and :func:`from_domain` need no code for one.
The limits are those of requests. A file has no limits, so a stored plan may exceed them: it is converted without
validation, and the schema of a response does not promise them.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kingdom.workflow.domain.landing import LandAs, LandPlan, LandSquash
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.work import DEFAULT_ENGINE, DEFAULT_RETRIES
from kingdom.workflow.domain.workflow import (
    DEFAULT_ON_FAILURE,
    OnFailure,
    TaskDefinition,
    WorkDefinition,
    check_merge,
)

# ── Values ──


ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NO_CONTROL: Final = r"^[^\x00-\x1f\x7f]*$"
_NAME: Final = re.compile(r"[^\W_][^/\\\x00-\x1f\x7f]*")
MAX_RETRIES: Final = 100
_MAX_JSON_CHARS: Final = 100_000


def checked_name(text: str) -> str:
    """Return a valid name; raise ValueError for anything else."""
    if text != text.strip() or not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r:.80} is not a valid name: begin with a letter or digit, on one line, without / and \\"
        )
    return text


def checked_query(text: str) -> str:
    """Return a query that is a valid template; raise ValueError for anything else."""
    from kingdom.workflow.adapters.queries import QueryInvalid
    from kingdom.workflow.adapters.query_rendering import check_query  # brings jinja2 with it

    try:
        check_query(text, "a task")
    except QueryInvalid as error:
        raise ValueError(str(error).removeprefix("a task: ")) from None
    return text


def checked_text(text: str) -> str:
    """Return a text that is not blank; raise ValueError for one that is."""
    if not text.strip():
        raise ValueError("must have text in it")
    return text


def checked_unique(texts: list[str]) -> list[str]:
    """Return texts that are all different; raise ValueError for others."""
    if twice := [text for at, text in enumerate(texts) if text in texts[:at]]:
        raise ValueError(f"{twice[0]!r:.80} is given twice")
    return texts


def checked_land_text(text: str) -> str:
    """Return a template of a branch, title or text of a landed workflow; raise ValueError for anything else."""
    from kingdom.workflow.adapters.landing_texts import check_land_template  # brings jinja2 with it

    check_land_template(checked_text(text))
    return text


def _checked_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cannot be stored as JSON: {error}") from None
    if len(text) > _MAX_JSON_CHARS:
        raise ValueError(f"larger than {_MAX_JSON_CHARS:,} characters")
    return value


_S = TypeVar("_S")
NameOf: TypeAlias = Annotated[_S, StringConstraints(min_length=1, max_length=100), AfterValidator(checked_name)]
Name: TypeAlias = NameOf[Annotated[str, StringConstraints(strip_whitespace=True)]]
Heading: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\n]*\S[^\n]*$")]
Retries: TypeAlias = Annotated[int, Field(ge=0, le=MAX_RETRIES)]
Description: TypeAlias = Annotated[str, StringConstraints(max_length=1000)]
Variables: TypeAlias = Annotated[dict[str, Any], AfterValidator(_checked_json)]
EnvValue: TypeAlias = Annotated[str, StringConstraints(max_length=5000, pattern=r"^[^\x00\r\n]*$")]
IdText: TypeAlias = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=100)]
_EnvName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]+$", max_length=100)]
_Branch: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=250, pattern=r"^[^-\x00-\x20\x7f][^\x00-\x20\x7f]*$")
]
_EngineName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NO_CONTROL)]
_ModelName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_CONTROL)]
Query: TypeAlias = Annotated[str, AfterValidator(checked_text), AfterValidator(checked_query)]
_Query: TypeAlias = Annotated[Query, StringConstraints(min_length=1, max_length=10_000)]


# ── A plan ──


_LIMITS: Final = ("minLength", "maxLength", "pattern", "minItems", "maxItems", "minimum", "maximum")
_LIMITS_OF_MAPPINGS: Final = ("maxProperties", "propertyNames", "patternProperties")


class PlanModel(BaseModel):
    """Base of the models: camelCase field names; unknown fields are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    domain_class: ClassVar[type]
    """The domain's class with the same fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Leave the limits of requests out of the schema of a response."""
        made = handler(core_schema)
        if handler.mode == "serialization":
            _remove_limits(handler.resolve_ref_schema(made))
        return made


def _remove_limits(schema: dict[str, Any]) -> None:
    if named := schema.get("patternProperties"):
        (schema["additionalProperties"],) = named.values()
    for name in (*_LIMITS, *_LIMITS_OF_MAPPINGS):
        schema.pop(name, None)
    inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    for part in (*inner, *schema.get("properties", {}).values()):
        if isinstance(part, dict):
            _remove_limits(part)


class GitRefFields(PlanModel):
    """Reference to a repository."""

    domain_class = GitRef

    git_id: IdText = Field(examples=["git-0198c2d0"])
    base: _Branch | None = Field(default=None, description="Branch to start from; null: the default branch.")


class McpServerRefFields(PlanModel):
    """Reference to an MCP server, with environment overrides."""

    domain_class = McpServerRef

    mcp_server_id: IdText = Field(examples=["mcp-0198c2d1"])
    env: dict[_EnvName, EnvValue] = Field(
        default_factory=dict,
        max_length=100,
        description="Overrides the server's variables. `***` is a hidden value; sent back, the value is kept.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )


GitRefs: TypeAlias = Annotated[list[GitRefFields], Field(max_length=20)]
McpServerRefs: TypeAlias = Annotated[list[McpServerRefFields], Field(max_length=20)]


class TaskFields(PlanModel):
    """A task in a plan."""

    domain_class = TaskDefinition

    name: Name = Field(examples=["task-1"])
    query: _Query = Field(examples=["Fix {{ issue.key }}."])
    outline: Annotated[list[Heading], Field(max_length=50), AfterValidator(checked_unique)] = Field(
        default_factory=list,
        description="Section headings of the report the task writes.",
        examples=[["Cause", "Change"]],
    )
    retries: Retries = DEFAULT_RETRIES


class WorkFields(PlanModel):
    """A work in a plan."""

    domain_class = WorkDefinition

    name: Name = Field(examples=["fix"])
    tasks: Annotated[list[TaskFields], Field(min_length=1, max_length=50)]
    engine: _EngineName = DEFAULT_ENGINE
    model: _ModelName | None = Field(default=None, description="null: the engine's default model.")
    engine_options: Variables = Field(default_factory=dict)
    mcp_server_refs: McpServerRefs = Field(default_factory=list)
    after: Annotated[list[Name], Field(max_length=50), AfterValidator(checked_unique)] = Field(
        default_factory=list, description="Names of the works it waits for; empty: all works before it."
    )
    merge: bool = False
    pause_after: bool = False
    continues: str | None = Field(default=None, description="Name of a work whose conversation it goes on with.")

    @model_validator(mode="after")
    def _check_merge(self) -> WorkFields:
        check_merge(merge=self.merge, after=self.after)
        return self


class LandFields(PlanModel):
    """What happens with the result when a workflow is completed."""

    domain_class = LandPlan

    how: LandAs = "pull-request"
    squash: LandSquash = Field(
        default="work", description="One commit for each work, one for everything, or the branch as it is."
    )
    branch: str | None = Field(default=None, description="Default: made from the issue key and the name.")
    title: str | None = Field(default=None, description="A template; default: the issue key and the topic.")
    body: str | None = Field(default=None, description="A template; default: what each work reports.")
    draft: bool = False


class TemplateFields(PlanModel):
    """Fields of a template."""

    name: Name = Field(examples=["fix"])
    description: Description = ""
    git_refs: GitRefs = Field(default_factory=list)
    mcp_server_refs: McpServerRefs = Field(default_factory=list)
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    land: LandFields | None = None
    works: Annotated[list[WorkFields], Field(min_length=1, max_length=50)]


class PartValues(PlanModel):
    """New values of a part of a plan, of which any may be left out."""


def values_of(part: type[PlanModel], *without: str) -> Any:
    """Return the model of new values of a part."""
    what = part.__name__.removesuffix("Fields")
    given: dict[str, Any] = {
        name: (
            Annotated[field.annotation, Field(), *field.metadata] | None,
            Field(None, description=field.description),
        )
        for name, field in part.model_fields.items()
        if name not in without
    }
    words = f"New values of a {what.lower()}; omitted fields are unchanged."
    return create_model(f"{what}Values", __base__=PartValues, __doc__=words, **given)


# ── The domain's classes ──


def to_domain(value: Any) -> Any:
    """Return the domain's form of a model; of new values a mapping of those that are given."""
    if isinstance(value, list):
        return tuple(to_domain(item) for item in value)
    if isinstance(value, PartValues):
        return {name: to_domain(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, PlanModel):
        kind: Any = value.domain_class
        return kind(**{field.name: to_domain(getattr(value, field.name)) for field in fields(kind)})
    return value


_PARTS: Final[dict[Any, type[PlanModel]]] = {
    model.domain_class: model for model in (GitRefFields, McpServerRefFields, TaskFields, WorkFields, LandFields)
}


def from_domain(item: Any, model: type[PlanModel] | None = None) -> Any:
    """Return the model of what is stored. It is not validated: it may exceed the limits of requests."""
    if isinstance(item, tuple):
        return [from_domain(part) for part in item]
    made = model or _PARTS.get(type(item))
    if made is None:
        return item
    return made.model_construct(**{name: from_domain(getattr(item, name)) for name in made.model_fields})
