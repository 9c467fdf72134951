"""What all parts of the configuration share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, GetJsonSchemaHandler, StringConstraints, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$", max_length=100)]
"""The name of an environment variable."""


class Section(BaseModel):
    """A part of a configuration file: unknown keys and wrong types are mistakes, and nobody changes it later.

    Types are strict, since YAML has its own: ``concurrency: yes`` is not 1.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Abbreviated(Section):
    """A section that may also be written as one text, the value of the key that ``short_form`` names."""

    short_form: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: Any) -> Any:
        return {cls.short_form: value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        short = schema["properties"][cls.short_form]
        return {"anyOf": [{**short, "description": f"In short: only {cls.short_form!r}."}, schema]}


def known_zone(name: str) -> str:
    """Return the name of a time zone; raise ValueError when there is no such zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a folder's name an OSError
        raise ValueError(
            f"no time zone {name!r:.80} is known on this machine: use a name as Europe/Berlin, Asia/Seoul or UTC"
        ) from None
    return name


TimeZone = Annotated[str, AfterValidator(known_zone)]
"""The name of a time zone, as in the IANA database."""
