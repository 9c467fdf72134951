"""Aggregates as JSON, and back: by the types their fields declare, so that a new field needs no code here."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast

A = TypeVar("A")
Reader = Callable[[Any], Any]


def encode(item: object) -> str:
    """The JSON of an aggregate. Its ``version`` is the row's business, not the document's."""
    document = _plain(item)
    document.pop("version", None)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def decode(kind: type[A], text: str, version: int) -> A:
    """The aggregate of its JSON. Fields that were added since have their defaults."""
    item = _reader(cast("Hashable", kind))(json.loads(text))
    item.version = version
    return cast("A", item)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (str, int, float, bool, type(None))):
        return value.value if isinstance(value, StrEnum) else value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    return [_plain(item) for item in value]


@cache
def _reader(kind: Hashable) -> Reader:
    """How to read a value of a declared type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _dataclass_reader(cast("type[Any]", kind))
    if origin in (types.UnionType, typing.Union):
        inner = _reader(next(part for part in arguments if part is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin in (tuple, list, set, frozenset):
        item, collect = _reader(arguments[0]), cast("Callable[[Any], Any]", origin)
        return lambda value: collect(item(part) for part in value)
    if origin in (dict, Mapping):
        item = _reader(arguments[1])
        return lambda value: {key: item(part) for key, part in value.items()}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    if kind is datetime:
        return datetime.fromisoformat
    return lambda value: value


def _dataclass_reader(kind: type[Any]) -> Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}

    def read(document: Any) -> Any:
        if absent := required - document.keys():
            raise KeyError(f"{kind.__name__} without {', '.join(sorted(absent))}")
        return kind(**{name: reader(document[name]) for name, reader in readers.items() if name in document})

    return read
