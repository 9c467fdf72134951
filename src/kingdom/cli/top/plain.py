"""Text that others wrote, as it may stand on the screen: one line, no control characters, no markup."""

from __future__ import annotations

import re
from typing import Final

from rich.text import Text

from kingdom.cli import output

# What is not seen but moves or hides what is: zero-width characters, and those that turn the direction of writing.
_HIDDEN: Final = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_LONGEST: Final = 2_000  # characters of one line: no screen shows more


def line(words: object, style: str = "") -> Text:
    """Anything as one line."""
    text = " ".join(clean(str(words)[:_LONGEST]).split())
    return Text(text, style=style, no_wrap=True, overflow="ellipsis", end="")


def lines(words: str, style: str = "") -> Text:
    """A text of several lines, as it is."""
    return Text(clean(words).expandtabs(4), style=style)


def clean(words: str) -> str:
    """The text with a visible stand-in for whatever a terminal would obey, or could not show."""
    shown = words.encode("utf-8", "replace").decode("utf-8")  # half a character from somebody's JSON
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", output.clean(shown))
