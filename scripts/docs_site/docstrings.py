"""Docstrings as Markdown. Loaded by mkdocstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe

_AS_MARKDOWN = (
    (re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?([^`.]+)`"), r"`\1`"),  # roles of reStructuredText: :class:`X`
    (re.compile(r"(?m)^::\n|(?<=:):$"), ""),  # "a block of code follows": Markdown needs no word about it
    (re.compile(r"(?m)^(``\w+``)\s{2,}"), r"- \1: "),  # a table of names
)


class MarkdownDocstrings(griffe.Extension):
    """Rewrite the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace what Markdown would show as it is."""
        if obj.docstring is not None:
            for pattern, replacement in _AS_MARKDOWN:
                obj.docstring.value = pattern.sub(replacement, obj.docstring.value)
