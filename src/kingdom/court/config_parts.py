"""What the models of all configuration files share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, StringConstraints, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kingdom.base.forms import form

EnvName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Z_][A-Z0-9_]*$", "the name of a variable, such as GITHUB_TOKEN"), max_length=100
    ),
]
"""The name of an environment variable."""
HostName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Za-z0-9._:\-\[\]]+$", "the name of a host, such as api.example.com"), max_length=255
    ),
]


class ConfigSection(BaseModel):
    """A section of a configuration file: immutable; unknown keys and wrong types are errors.

    Types are strict, because YAML has its own: ``concurrency: yes`` is not 1.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # most commands use few of the models: each is compiled when it is used
    )


class ShortFormSection(ConfigSection):
    """A section that can also be a single string: the value of the key that ``short_form`` names."""

    short_form: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: Any) -> Any:
        return {cls.short_form: value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        short = schema["properties"][cls.short_form]
        return {"anyOf": [{**short, "description": f"Short form: only {cls.short_form!r}."}, schema]}
