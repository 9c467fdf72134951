"""What the tools share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]


def plain(model: BaseModel) -> dict[str, Any]:
    """A model as it goes over the wire."""
    return model.model_dump(mode="json", by_alias=True)
