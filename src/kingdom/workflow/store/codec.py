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
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

A = TypeVar("A")
Reader = Callable[[Any], Any]
_VERSION: Final = "version"  # a column of its own


def encode(item: object) -> str:
    """The JSON of an aggregate. Its ``version`` is the row's business, not the document's."""
    document = _plain(item)
    document.pop(_VERSION, None)
    return _encoder.encode(document)


def decode(kind: type[A], text: str, version: int) -> A:
    """The aggregate of its JSON. Fields that were added since have their defaults."""
    reader = _reader(cast("Hashable", kind))
    assert reader is not None
    item = reader(json.loads(text))
    item.version = version
    return cast("A", item)


def _plain(value: Any) -> Any:
    """What the encoder does not know by itself, as something it knows."""
    if (take := _taker(cast("Hashable", type(value)))) is not None:
        return take(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not stored")


# Mostly C: it walks lists, dictionaries and words by itself, and asks for the rest.
_encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain)


@cache
def _taker(kind: Hashable) -> Callable[[Any], dict[str, Any]] | None:
    """What takes the fields of a dataclass (of two or more); None for another type."""
    if not is_dataclass(kind):
        return None
    names = tuple(field.name for field in fields(kind))
    values = attrgetter(*names)
    return lambda item: dict(zip(names, values(item), strict=True))


@cache
def _reader(kind: Hashable) -> Reader | None:
    """How to read a value of a declared type; None when JSON has it as it is."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _dataclass_reader(cast("type[Any]", kind))
    if origin in (types.UnionType, typing.Union):
        inner = _reader(next(part for part in arguments if part is not type(None)))
        return None if inner is None else lambda value: None if value is None else inner(value)
    if origin in (tuple, list, set, frozenset):
        return _collection_reader(cast("Callable[[Any], Any]", origin), _reader(arguments[0]))
    if origin in (dict, Mapping):
        item = _reader(arguments[1])
        return None if item is None else lambda value: {key: item(part) for key, part in value.items()}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {str(member): member for member in kind}.__getitem__
    return datetime.fromisoformat if kind is datetime else None


def _collection_reader(collect: Callable[[Any], Any], item: Reader | None) -> Reader | None:
    if item is None:
        return None if collect is list else collect
    if collect is list:
        return lambda value: [item(part) for part in value]
    return lambda value: collect(map(item, value))


def _dataclass_reader(kind: type[Any]) -> Reader:
    hints = typing.get_type_hints(kind)
    known = dict.fromkeys(field.name for field in fields(kind) if field.name != _VERSION).keys()
    readers = [(field.name, reader) for field in fields(kind) if (reader := _reader(hints[field.name]))]
    required = frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)

    def read(document: Any) -> Any:
        names = document.keys()
        if names != known:  # of another version: some fields may be missing, some gone since
            if not required <= names:
                raise KeyError(f"{kind.__name__} without {', '.join(sorted(required - names))}")
            document = {name: value for name, value in document.items() if name in known}
        for name, reader in readers:
            if name in document:
                document[name] = reader(document[name])
        return kind(**document)

    return read
