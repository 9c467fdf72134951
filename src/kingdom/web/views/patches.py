"""Patches as a page shows them: hunks with numbered lines, the old side beside the new one."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final, Literal

from pydantic import Field

from kingdom.web.envelope import ApiModel

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")


class Line(ApiModel):
    """A line of a hunk: one that stays, is new, or is gone."""

    kind: Literal[" ", "+", "-"] = Field(examples=["+"])
    text: str = Field(examples=["timeout = 30"])
    old_number: int | None = Field(default=None, examples=[None])
    new_number: int | None = Field(default=None, examples=[12])


class Hunk(ApiModel):
    """Lines that stand together."""

    old_start: int = Field(examples=[10])
    old_lines: int = Field(examples=[6])
    new_start: int = Field(examples=[10])
    new_lines: int = Field(examples=[7])
    heading: str = Field(description="The function it is in, where git knows it.", examples=["def connect():"])
    lines: list[Line]


def hunks_of(patch: str) -> list[Hunk]:
    """The hunks of the patch of one file. A patch that was cut off ends in a hunk that is not whole."""
    hunks: list[Hunk] = []
    old = new = 0
    for text in patch.split("\n"):
        if head := _HUNK.match(text):
            old, new = int(head[1]), int(head[3])
            hunks.append(
                Hunk(
                    old_start=old,
                    old_lines=int(head[2] or 1),
                    new_start=new,
                    new_lines=int(head[4] or 1),
                    heading=head[5],
                    lines=[],
                )
            )
        elif not hunks or not text:
            continue
        elif text[0] == "+":
            hunks[-1].lines.append(Line(kind="+", text=text[1:], new_number=new))
            new += 1
        elif text[0] == "-":
            hunks[-1].lines.append(Line(kind="-", text=text[1:], old_number=old))
            old += 1
        elif text[0] == " ":
            hunks[-1].lines.append(Line(kind=" ", text=text[1:], old_number=old, new_number=new))
            old, new = old + 1, new + 1
    return hunks


def side_by_side(hunk: Hunk) -> list[tuple[Line | None, Line | None]]:
    """The old side and the new side, row by row; lines that were changed stand beside what they became."""
    rows: list[tuple[Line | None, Line | None]] = []
    gone: list[Line] = []
    fresh: list[Line] = []

    def flush() -> None:
        rows.extend(zip_longest(gone, fresh))
        gone.clear()
        fresh.clear()

    for line in hunk.lines:
        if line.kind == "-":
            if fresh:
                flush()
            gone.append(line)
        elif line.kind == "+":
            fresh.append(line)
        else:
            flush()
            rows.append((line, line))
    flush()
    return rows
