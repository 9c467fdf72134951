"""What a visitor filled in, or an agent gave, as the body of a request: mistakes in it are told like any refusal."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kingdom.web.envelope import ApiError

M = TypeVar("M", bound=BaseModel)


def asked(model: type[M], **values: Any) -> M:
    """The body; raises :class:`ApiError` with a line for each mistake."""
    try:
        return model(**values)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ApiError(422, "SYS_INVALID", "\n".join(wrong), list(wrong)) from error
