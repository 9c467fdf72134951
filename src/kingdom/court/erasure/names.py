"""Find the names of a person or a repository in texts, and hide them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kingdom.court.errors import CourtError
from kingdom.court.models import Event, Message, Result, Task
from kingdom.journal import CATALOG

SubjectKind = Literal["person", "repository"]
_MIN_NAME_CHARS: Final = 2
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+")
# A name begins and ends at a word. In the text of a JSON document, an escape such as \n may stand before it.
_BEFORE: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4}))"
_AFTER: Final = {"person": r"(?![A-Za-z0-9_-])", "repository": r"(?![A-Za-z0-9_-])(?!\.(?!git\b)[A-Za-z0-9])"}
# Words of the court's own documents. To hide one of them in a file would damage the file.
_OWN_WORDS: Final = frozenset(
    {
        "king", "general", "soldier", "sentinel", "envoy", "chamberlain", "supervisor", "web", "link", "court",
        "true", "false", "null", "high", "normal", "low", "pending", "dispatched", "completed", "failed", "cancelled",
        "in_progress", "sent", "success", "needs_human", "skipped", "killed", "timeout", "invalid", "running",
        "github", "jira", "slack", "console", "system", "kingdom", "ts", "actor", "data",
        *(name for model in (Event, Task, Message, Result) for name in model.model_fields),
        *(word for spec in CATALOG.values() for word in spec.name.split(".")),
        *(one.key for spec in CATALOG.values() for one in spec.fields),
    }
)  # fmt: skip


class InvalidSubject(CourtError):
    """A name that cannot be searched for."""

    code = "INVALID_NAME"


@dataclass(frozen=True, slots=True)
class SubjectNames:
    """The names under which a person or a repository is known. Case is ignored."""

    kind: SubjectKind
    names: tuple[str, ...]
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.names:
            raise InvalidSubject("name a person or a repository")
        for name in self.names:
            _check_name(self.kind, name)
        forms = {form for name in self.names for form in (name, json.dumps(name)[1:-1])}
        words = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        pattern = re.compile(f"{_BEFORE}(?:{words}){_AFTER[self.kind]}", re.IGNORECASE)
        object.__setattr__(self, "_pattern", pattern)

    @property
    def text(self) -> str:
        """The names, for people."""
        return f"{self.kind} {', '.join(self.names)}"

    def are_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def are_in_document(self, document: Any) -> bool:
        """Tell whether a JSON value names it."""
        return self.are_in(json.dumps(document, ensure_ascii=False, default=str))

    def hide(self, text: str) -> str:
        """Replace each name by as many ``x`` as it has bytes, so that nothing after it moves."""
        return self._pattern.sub(lambda found: "x" * len(found[0].encode("utf-8", "surrogatepass")), text)

    def hide_in_values(self, value: Any) -> Any:
        """Hide the names in all texts of a JSON value, but not in its keys."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_in_values(one) for one in value]
        if isinstance(value, dict):
            return {key: self.hide_in_values(one) for key, one in value.items()}
        return value

    def hide_in_bytes(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        return self._pattern.sub(lambda found: "x" * len(found[0].encode("utf-8", "surrogateescape")), text).encode(
            "utf-8", "surrogateescape"
        )


def _check_name(kind: SubjectKind, name: str) -> None:
    if len(name.strip()) < _MIN_NAME_CHARS or name != name.strip():
        raise InvalidSubject(
            f"{name!r:.80} is too short to be searched for: give at least {_MIN_NAME_CHARS} characters"
        )
    if any(ord(character) < 32 for character in name):
        raise InvalidSubject(f"{name!r:.80} has a control character")
    if kind == "repository" and not _REPOSITORY.fullmatch(name):
        raise InvalidSubject(f"{name!r:.80} is not a repository: write OWNER/NAME")
    if name.casefold() in _OWN_WORDS:
        raise InvalidSubject(
            f"{name!r} is a word of the court's own documents, so it cannot be searched for: give a longer name"
        )
