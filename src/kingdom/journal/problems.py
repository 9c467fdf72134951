"""What a reader could not take, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["not-event", "too-long", "torn", "gone", "shrunk"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something was passed over: which file, at which byte, and why.

    * ``not-event``: a line that is not JSON, or not an event;
    * ``too-long``: a line of more than a megabyte;
    * ``torn``: the last line of a closed file has no end;
    * ``gone``: a file was removed before it was read to its end;
    * ``shrunk``: a file is shorter than what was read of it, so reading began again at its start.
    """

    kind: Kind
    file: str
    offset: int
    detail: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset:,}: {self.detail}"
