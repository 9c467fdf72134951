"""Markdown as Slack's rich text blocks.

Agents and reports write Markdown. Slack's own markup differs from it (``*bold*``, no tables), and would take names and
commands in a text for its own. In rich text blocks every character is shown as it is, and nothing is obeyed.

A text becomes a list of units: a paragraph, an item of a list, a piece of code, a divider. Units are small, so that a
long text can be divided between several posts.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from kingdom.court.envoy.slack.text import clean_controls, split_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

_Element = dict[str, Any]
_MAX_TEXT_CHARS: Final = 2_000  # of one element
_MAX_UNIT_SIZE: Final = 4_000
_MAX_TABLE_COLUMNS: Final = 90  # a wider table does not fit on a screen: it becomes a list of records
_MAX_DEPTH: Final = 20
_MAX_INDENT: Final = 8  # Slack's limit for lists
_STYLES: Final = {"strong": "bold", "em": "italic", "s": "strike"}
_BARE_URL: Final = re.compile(r"https?://[^\s<>\"'`|]*[^\s<>\"'`|.,;:!?)\]}*_]")
# CommonMark does not see the end of bold text between a quotation mark and a letter, which is usual in Korean.
_LEFT_BOLD: Final = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_URL_SCHEMES: Final = ("http", "https", "mailto")
_MARKUP: Final = frozenset("*_~`")
_NARROW: Final = ("N", "Na", "H", "A")


class Unit(NamedTuple):
    """A part of a rich text that is not divided."""

    element: _Element
    """An element of a rich text block, a section of a list, or a divider."""
    style: str = ""
    """For an item of a list: bullet or ordered."""
    indent: int = 0
    number: int = 0

    @property
    def size(self) -> int:
        return len(json.dumps(self.element, ensure_ascii=False))


def is_plain(text: str, units: Iterable[Unit]) -> bool:
    """Return whether a text with these units has nothing that Markdown, or Slack's own markup, would format."""
    return not _MARKUP.intersection(text) and all(
        unit.element.get("type") == "rich_text_section"
        and not unit.style
        and not any("style" in item or (item["type"] == "link" and "text" in item) for item in unit.element["elements"])
        for unit in units
    )


def markdown_units(text: str) -> list[Unit]:
    """Return the units of a Markdown text."""
    from markdown_it.tree import SyntaxTreeNode

    root = SyntaxTreeNode(_parser().parse(clean_controls(text)))
    return [small for unit in _block_units(root.children, 0) for small in _divide(unit)]


def rich_blocks(units: Iterable[Unit]) -> list[_Element]:
    """Return the blocks of a post that shows these units."""
    blocks: list[_Element] = []
    elements: list[_Element] = []
    last: Unit | None = None
    for unit in units:
        if unit.element["type"] == "divider":
            blocks += [*_rich_block(elements), unit.element]
            elements, last = [], None
            continue
        if not unit.style:
            elements.append(unit.element)
        elif last is not None and (last.style, last.indent) == (unit.style, unit.indent):
            elements[-1]["elements"].append(unit.element)
        else:
            offset = {"offset": unit.number - 1} if unit.number > 1 else {}
            shape = {"type": "rich_text_list", "style": unit.style, "indent": unit.indent, **offset}
            elements.append({**shape, "elements": [unit.element]})
        last = unit
    return blocks + _rich_block(elements)


def divide_units(units: Iterable[Unit], first: int, others: int) -> list[list[Unit]]:
    """Divide units between posts of limited size: ``first`` for the first post, ``others`` for each further one."""
    parts: list[list[Unit]] = [[]]
    used = 0
    for unit in units:
        if parts[-1] and used + unit.size > (first if len(parts) == 1 else others):
            parts.append([])
            used = 0
        parts[-1].append(unit)
        used += unit.size
    return parts


def plain_text(units: Iterable[Unit]) -> str:
    """Return the text of units without formatting, for notifications and programs that do not show blocks."""
    return "\n".join(
        "".join(str(item.get("text") or item.get("url") or "") for item in unit.element.get("elements", ())).strip("\n")
        for unit in units
    )


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # here: a court without Slack does not load it

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _rich_block(elements: list[_Element]) -> list[_Element]:
    return [{"type": "rich_text", "elements": elements}] if elements else []


def _block_units(nodes: Iterable[SyntaxTreeNode], depth: int) -> Iterator[Unit]:
    for node in nodes:
        kind = node.type
        if kind == "heading":
            yield from _section(_inline(node, {"bold": True}))
        elif kind in ("bullet_list", "ordered_list"):
            yield from _list_units(node, 0, depth)
        elif kind in ("fence", "code_block"):
            yield _preformatted(node.content)
        elif kind == "blockquote":
            yield from _quote(node, depth)
        elif kind == "table":
            yield from _table_units(node)
        elif kind == "hr":
            yield Unit({"type": "divider"})
        else:
            yield from _section(_inline(node, {}))


def _section(elements: list[_Element]) -> Iterator[Unit]:
    if elements:
        yield Unit({"type": "rich_text_section", "elements": [*elements, {"type": "text", "text": "\n"}]})


def _list_units(node: SyntaxTreeNode, indent: int, depth: int) -> Iterator[Unit]:
    style = "ordered" if node.type == "ordered_list" else "bullet"
    start = int(node.attrs.get("start", 1) or 1)
    for number, item in enumerate(node.children, start):
        elements: list[_Element] = []
        below: list[Unit] = []
        for child in item.children:
            if child.type in ("bullet_list", "ordered_list") and depth < _MAX_DEPTH:
                below += _list_units(child, min(indent + 1, _MAX_INDENT), depth + 1)
            elif child.type in ("fence", "code_block", "table", "blockquote"):
                below += _block_units([child], depth + 1)
            else:
                elements += [{"type": "text", "text": "\n"}, *_inline(child, {})] if elements else _inline(child, {})
        shown = elements or [{"type": "text", "text": " "}]
        yield Unit({"type": "rich_text_section", "elements": shown}, style, indent, number if style == "ordered" else 0)
        yield from below


def _quote(node: SyntaxTreeNode, depth: int) -> Iterator[Unit]:
    elements: list[_Element] = []
    for unit in _block_units(node.children, depth + 1) if depth < _MAX_DEPTH else ():
        mark = "• " if unit.style == "bullet" else f"{unit.number}. " if unit.style else ""
        elements += [{"type": "text", "text": mark}] if mark else []
        elements += [*unit.element.get("elements", ()), *([{"type": "text", "text": "\n"}] if mark else [])]
    if elements:
        yield Unit({"type": "rich_text_quote", "elements": _without_last_break(elements)})


def _without_last_break(elements: list[_Element]) -> list[_Element]:
    return elements[:-1] if len(elements) > 1 and elements[-1].get("text") == "\n" else elements


def _preformatted(text: str) -> Unit:
    return Unit({"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text.rstrip("\n") or " "}]})


def _inline(node: SyntaxTreeNode, style: dict[str, bool]) -> list[_Element]:
    return _joined(_inline_elements(node, style))


def _inline_elements(node: SyntaxTreeNode, style: dict[str, bool]) -> Iterator[_Element]:
    kind = node.type
    if kind in ("softbreak", "hardbreak"):
        yield {"type": "text", "text": "\n"}
    elif kind == "code_inline":
        yield _text(node.content, {**style, "code": True})
    elif kind == "link":
        yield from _link(node, style)
    elif kind == "image":
        alt = "".join(str(item.get("text", "")) for child in node.children for item in _inline_elements(child, {}))
        yield _link_element(str(node.attrs.get("src", "")), alt or "image", style)
    elif node.children:
        inner = {**style, _STYLES[kind]: True} if kind in _STYLES else style
        for child in node.children:
            yield from _inline_elements(child, inner)
    elif node.type in ("text", "html_inline", "html_block") and node.content:
        yield from _plain(node.content, style)


def _plain(text: str, style: dict[str, bool]) -> Iterator[_Element]:
    """Yield a text with its addresses as links, and bold text that CommonMark did not see."""
    end = 0
    for found in _LEFT_BOLD.finditer(text):
        yield from _with_links(text[end : found.start()], style)
        yield from _with_links(found[1], {**style, "bold": True})
        end = found.end()
    yield from _with_links(text[end:], style)


def _with_links(text: str, style: dict[str, bool]) -> Iterator[_Element]:
    end = 0
    for found in _BARE_URL.finditer(text):
        yield _text(text[end : found.start()], style)
        yield _link_element(found[0], "", style)
        end = found.end()
    yield _text(text[end:], style)


def _link(node: SyntaxTreeNode, style: dict[str, bool]) -> Iterator[_Element]:
    href = str(node.attrs.get("href", ""))
    label = "".join(str(item.get("text") or item.get("url") or "") for item in _label_elements(node))
    if "://" in label and label.rstrip("/") != href.rstrip("/"):
        # The label is an address itself, but not the one it leads to: show both.
        yield _text(f"{label} ", style)
        label = ""
    yield _link_element(href, label, style)


def _label_elements(node: SyntaxTreeNode) -> Iterator[_Element]:
    for child in node.children:
        yield from _inline_elements(child, {})


def _link_element(url: str, label: str, style: dict[str, bool]) -> _Element:
    if urlsplit(url).scheme not in _URL_SCHEMES or len(url) > _MAX_TEXT_CHARS:
        return _text(f"{label} ({url})" if label and label != url else url or label, style)
    shown = {"text": label} if label and label != url else {}
    return {"type": "link", "url": url, **shown, **({"style": style} if style else {})}


def _text(text: str, style: dict[str, bool]) -> _Element:
    return {"type": "text", "text": text, **({"style": style} if style else {})}


def _joined(elements: Iterable[_Element]) -> list[_Element]:
    """Join texts of the same style, and drop empty ones: Slack refuses them."""
    found: list[_Element] = []
    for element in elements:
        if element["type"] == "text" and not element["text"]:
            continue
        last = found[-1] if found else {}
        if element["type"] == "text" == last.get("type") and element.get("style") == last.get("style"):
            found[-1] = {**last, "text": last["text"] + element["text"]}
        else:
            found.append(element)
    return found


def _table_units(node: SyntaxTreeNode) -> Iterator[Unit]:
    """Yield a table as aligned text, or as a list of records if it is too wide."""
    rows = [
        ["".join(str(item.get("text") or item.get("url") or "") for item in _inline(cell, {})) for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    if not rows:
        return
    widths = [max(_width(cell) for cell in column) for column in zip(*rows, strict=True)]
    if sum(widths) + 3 * len(widths) <= _MAX_TABLE_COLUMNS:
        lines = [" │ ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        lines.insert(1, "─┼─".join("─" * width for width in widths))
        yield _preformatted("\n".join(line.rstrip() for line in lines))
        return
    head, *records = rows
    for record in records:
        pairs = [(name, value) for name, value in zip(head, record, strict=True) if value]
        elements: list[_Element] = []
        for name, value in pairs:
            elements += [_text(f"{name}: ", {"bold": True}), *_plain(value, {}), _text("\n", {})]
        yield Unit(
            {"type": "rich_text_section", "elements": _joined(_without_last_break(elements)) or [_text(" ", {})]},
            "bullet",
        )


def _width(text: str) -> int:
    """Return the columns that a text takes in a fixed-width font: Korean letters and emoji take two."""
    return sum(
        0 if unicodedata.combining(char) or char in "\u200d\ufe0f" else 1 if _is_narrow(char) else 2 for char in text
    )


def _is_narrow(char: str) -> bool:
    return unicodedata.east_asian_width(char) in _NARROW


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _divide(unit: Unit) -> Iterator[Unit]:
    """Divide a unit that is too large for one post."""
    if unit.size <= _MAX_UNIT_SIZE:
        yield unit
        return
    pieces: list[_Element] = []
    for element in unit.element.get("elements", ()):
        if element["type"] == "text" and len(element["text"]) > _MAX_TEXT_CHARS:
            pieces += [{**element, "text": part} for part in split_text(element["text"], _MAX_TEXT_CHARS)]
        else:
            pieces.append(element)
    part: list[_Element] = []
    for piece in pieces:
        if part and len(json.dumps([*part, piece], ensure_ascii=False)) > _MAX_UNIT_SIZE:
            yield unit._replace(element={**unit.element, "elements": part})
            part = []
        part.append(piece)
    yield unit._replace(element={**unit.element, "elements": part})
