"""The comments of a review: texts for single lines of a change, as a reviewer leaves them in its result."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, ValidationError

from kingdom.base.forms import problem_text
from kingdom.gitops import GitError, diff

if TYPE_CHECKING:
    from kingdom.court.general.workspace import PullRequest, Workplace

COMMENTS_FIELD: Final = "comments"
_MAX_COMMENTS: Final = 100
_MAX_FILES: Final = 300  # of a change whose lines are compared
_HUNK: Final = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class ReviewComment(BaseModel):
    """A comment on one line of a file, as the change leaves it."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    line: int = Field(ge=1)
    body: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60_000)]

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


_COMMENTS: Final = TypeAdapter(Annotated[list[ReviewComment], Field(max_length=_MAX_COMMENTS)])


def comments_of(result: Mapping[str, Any]) -> list[ReviewComment]:
    """Return the comments in a result. Raises ValueError, in words for people."""
    try:
        return _COMMENTS.validate_python(result.get(COMMENTS_FIELD) or [])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in (COMMENTS_FIELD, *first["loc"]))
        raise ValueError(f"{where}: {problem_text(first)}") from None


async def comments_problem(comments: Sequence[ReviewComment], place: Workplace, pull: PullRequest | None) -> str | None:
    """Return what is wrong with comments on a pull request: each has to be on a line that its diff shows."""
    if not comments:
        return None
    if place.tree is None or pull is None or not (pull.head and pull.base):
        return "there are comments on lines, but no pull request whose lines are known"
    try:
        lines = await _changed_lines(place, pull)
    except GitError as error:
        return f"the diff of the pull request cannot be read: {error}"
    wrong = [one.place for one in comments if not any(one.line in span for span in lines[one.path])]
    if not wrong:
        return None
    return f"{', '.join(wrong[:5])}: no line that the diff of the pull request shows"


async def _changed_lines(place: Workplace, pull: PullRequest) -> Mapping[str, list[range]]:
    """Return the lines of each file in the diff, with their context, numbered as the change leaves them."""
    assert place.tree is not None
    clone = place.tree.clone
    base = (await clone.run("merge-base", pull.base, pull.head)).text.strip()
    found: dict[str, list[range]] = defaultdict(list)
    for file in await diff(clone, base, pull.head, patches=True, max_patches=_MAX_FILES):
        for begin, count in _HUNK.findall(file.patch or ""):
            found[file.path].append(range(int(begin), int(begin) + int(count or 1)))
    return found
