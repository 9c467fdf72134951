"""What may stand in requests: names, texts, ids, variables."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from kingdom.web.api.work.routing import ID_PATTERN
from kingdom.workflow.adapters.queries import QueryInvalid, check_query
from kingdom.workflow.template_file import Heading, Retries, checked_name

_LARGEST_JSON: Final = 100_000  # characters


def _plain_name(text: str) -> str:
    if "@" in text:
        raise ValueError("a name has no @: NAME@BRANCH stands for a branch")
    return checked_name(text)


def _query(text: str) -> str:
    try:
        check_query(text, "a task")
    except QueryInvalid as error:
        raise ValueError(str(error).removeprefix("a task: ")) from None
    return text


def _json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this cannot be kept as JSON: {error}") from None
    if len(text) > _LARGEST_JSON:
        raise ValueError(f"this is larger than {_LARGEST_JSON:,} characters")
    return value


_NAME: Final = StringConstraints(strip_whitespace=True, min_length=1, max_length=100)
_NO_CONTROL: Final = r"^[^\x00-\x1f\x7f]*$"

Name: TypeAlias = Annotated[str, _NAME, AfterValidator(checked_name)]
SourceName: TypeAlias = Annotated[str, _NAME, AfterValidator(_plain_name)]
Description: TypeAlias = Annotated[str, StringConstraints(max_length=1000)]
QueryText: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=10_000), AfterValidator(_query)]
Outline: TypeAlias = Annotated[list[Heading], Field(max_length=50)]
RetryCount: TypeAlias = Retries
IdText: TypeAlias = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=100)]
IssueKey: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=_NO_CONTROL)
]
Branch: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=250, pattern=r"^[^-\x00-\x20\x7f][^\x00-\x20\x7f]*$")
]
EngineName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=_NO_CONTROL)]
ModelName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_NO_CONTROL)]
Variables: TypeAlias = Annotated[dict[str, Any], AfterValidator(_json)]
Yaml: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200_000)]
Place: TypeAlias = Annotated[int, Field(ge=0, le=10_000)]
EnvName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]+$", max_length=100)]
EnvValue: TypeAlias = Annotated[str, StringConstraints(max_length=5000, pattern=r"^[^\x00\r\n]*$")]
