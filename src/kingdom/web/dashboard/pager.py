"""Links between the parts of something long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kingdom.web.dashboard.components import link, tag, text

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


@dataclass(frozen=True, slots=True)
class PartLinks:
    """Which part is shown, in words, and the URLs of others; None: there is none in this direction."""

    shown: str
    first: str | None = None
    previous: str | None = None
    following: str | None = None
    last: str | None = None


def part_numbers(first: int, count: int, total: int, size: int) -> dict[str, int | None]:
    """Return where other parts begin, of ``total`` things in parts of ``size``; ``first`` begins the shown one."""
    last = (total - 1) // size * size
    return {
        "first": 0 if first else None,
        "previous": max(first - size, 0) if first else None,
        "following": first + count if first + count < total else None,
        "last": last if first + count < total else None,
    }


def draw_parts(visit: Visit, links: PartLinks, *, again: bool = False) -> None:
    """Draw which part is shown, and links to the others; ``again``: the same below it, which is no second landmark."""
    words = visit.words
    with tag("div" if again else "nav", "k-row k-wrapping k-parts") as made:
        if not again:
            made.props["aria-label"] = words("parts.label")
        text(links.shown, "k-muted k-small").props["data-shown"] = ""
        for name in ("first", "previous", "following", "last"):
            target = getattr(links, name)
            if target is not None:
                link(words(f"parts.{name}"), target).props["data-part"] = name
