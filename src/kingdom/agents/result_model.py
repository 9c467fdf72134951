"""The form of a result file. A module of its own: pydantic takes longer to load than most commands take."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class ResultQuestion(BaseModel):
    """A question to a person."""

    model_config = ConfigDict(extra="allow")

    text: str = Field(min_length=1)
    choices: list[str] = Field(default_factory=list, max_length=20)
    default: str | None = None  # the answer if nobody replies in time


class RawResult(BaseModel):
    """The content of a result file. Unknown fields are kept."""

    model_config = ConfigDict(extra="allow")

    status: Literal["success", "failed", "needs_human", "skipped"]
    summary: str = ""
    error: str | None = None  # why it did not succeed
    question: ResultQuestion | None = None  # for needs_human; a plain string is its text
    memory_updates: list[str] = Field(default_factory=list, max_length=100)
    links: list[str] = Field(default_factory=list, max_length=100)

    @field_validator("question", mode="before")
    @classmethod
    def _plain_question(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"text": value} if value.strip() else None
        return value or None

    @model_validator(mode="after")
    def _question_when_needed(self) -> RawResult:
        if self.status == "needs_human" and self.question is None:
            raise ValueError("status needs_human needs a question")
        return self

    def document(self) -> dict[str, Any]:
        """Return it as JSON, with every field of the contract."""
        return self.model_dump(mode="json")
