"""Jira's rich text (Atlassian Document Format) as plain text, and whom it mentions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kingdom.court.sentinel.texts import plain

_MAX_DEPTH: Final = 60
_BLOCKS: Final = {"paragraph", "heading", "codeBlock", "blockquote", "panel", "rule", "tableRow", "taskItem"}
_ATTRIBUTES: Final = {  # nodes whose text is an attribute
    "mention": "text",
    "emoji": "shortName",
    "inlineCard": "url",
    "blockCard": "url",
    "embedCard": "url",
    "status": "text",
    "date": "timestamp",
    "media": "alt",
}


def text_of(document: Any) -> str:
    """A document as text; text as it is; nothing for anything else."""
    if isinstance(document, str):
        return plain(document)
    return plain("".join(_texts(document, 0, "")).strip("\n"))


def mentions_in(document: Any, depth: int = 0) -> Iterator[str]:
    """The ids of the accounts that a document mentions."""
    if not isinstance(document, dict) or depth > _MAX_DEPTH:
        return
    attributes = document.get("attrs")
    if document.get("type") == "mention" and isinstance(attributes, dict) and isinstance(attributes.get("id"), str):
        yield attributes["id"]
    for node in _content(document):
        yield from mentions_in(node, depth + 1)


def _texts(node: Any, depth: int, lead: str) -> Iterator[str]:
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return
    kind = node.get("type")
    if kind == "text" and isinstance(node.get("text"), str):
        yield _linked(node)
    elif kind == "hardBreak":
        yield "\n"
    elif kind in _ATTRIBUTES:
        attributes = node.get("attrs")
        yield str((attributes if isinstance(attributes, dict) else {}).get(_ATTRIBUTES[kind]) or "")
    elif kind in ("bulletList", "orderedList"):
        for number, item in enumerate(_content(node), 1):
            mark = "- " if kind == "bulletList" else f"{number}. "
            yield f"{lead}{mark}"
            yield "".join(_texts(item, depth + 1, lead + "  ")).lstrip(" ")
    elif kind in ("tableCell", "tableHeader"):
        yield "".join(_texts_of_all(node, depth, lead)).strip("\n") + " | "
    else:
        yield from _texts_of_all(node, depth, lead)
    if kind in _BLOCKS:
        yield "\n"


def _texts_of_all(node: dict[str, Any], depth: int, lead: str) -> Iterator[str]:
    for child in _content(node):
        yield from _texts(child, depth + 1, lead)


def _linked(node: dict[str, Any]) -> str:
    """A text with the place its link leads to, if that is another."""
    text = str(node["text"])
    for mark in node.get("marks") or []:
        if isinstance(mark, dict) and mark.get("type") == "link" and isinstance(mark.get("attrs"), dict):
            href = mark["attrs"].get("href")
            if isinstance(href, str) and href != text:
                return f"{text} ({href})"
    return text


def _content(node: dict[str, Any]) -> list[Any]:
    found = node.get("content")
    return found if isinstance(found, list) else []
