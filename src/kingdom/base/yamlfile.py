"""Load YAML files that people write: validate them with a model, and report every problem with file and line.

YAML 1.2 applies: only ``true`` and ``false`` are booleans; ``no``, ``13:00`` and dates are strings. Secrets do not
belong in such files: a value that looks like one is refused.
"""

from __future__ import annotations

import difflib
import re
import stat
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from kingdom.base.forms import problem_text
from kingdom.base.text import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_BYTES: Final = 1_000_000
_MAX_NODES: Final = 50_000  # with aliases expanded: a few lines can expand to billions
_MAX_KEPT_CHARS: Final = 20_000  # of a file that is kept parsed
_BELOW: Final = "below a | on lines of its own"
_MAX_NAME_CHARS: Final = 60  # of an item, in a message
_TAGS: Final = {f"tag:yaml.org,2002:{word}" for word in ("map", "seq", "str", "int", "float", "bool", "null", "merge")}

M = TypeVar("M", bound=BaseModel)


class WrongValue(NamedTuple):
    """A value that its model refuses: where it is, for programs (``("works", 0, "name")``), and what is wrong."""

    path: tuple[str | int, ...]
    kind: str
    """Pydantic's name of the error, such as ``missing``."""
    what: str


class YamlProblem(Exception):
    """A YAML file that cannot be used. Its message has a line for each problem: ``file:line: what is wrong``.

    ``wrong`` has the values that the model refuses, in the order of ``problems``; none if it could not be read at all.
    """

    code = "INVALID_YAML"

    def __init__(self, problems: Iterable[str], wrong: Sequence[WrongValue] = ()) -> None:
        self.problems = list(problems)
        self.wrong = list(wrong)
        super().__init__("\n".join(self.problems))


def load_yaml(path: Path, model: type[M], context: Mapping[str, Any] | None = None) -> M:
    """Load a file into a model. Raises :class:`YamlProblem` with every problem. An empty file is ``{}``.

    ``context`` is passed to the model's validators (``ValidationInfo.context``).
    """
    return parse_yaml(read_text(path), model, str(path), context)


def read_text(path: Path) -> str:
    """Read a text file. Raises :class:`YamlProblem`."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise YamlProblem([f"{path}: not a file"])
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise YamlProblem([f"{path}: {error.strerror or error}"]) from None
    if len(content) > MAX_BYTES:
        raise YamlProblem([f"{path}: larger than {MAX_BYTES:,} bytes"])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise YamlProblem([f"{path}:{line}: not UTF-8 text ({error.reason})"]) from None


def parse_yaml(text: str, model: type[M], name: str, context: Mapping[str, Any] | None = None) -> M:
    """Load a text into a model. ``name`` precedes the line numbers in problems."""
    node, document = _parse(text, name)
    if not isinstance(document, dict):
        raise YamlProblem([f"{name}:1: the file must be a mapping (key: value), not {_kind(document)}"])
    try:
        return model.model_validate(document, context=context)
    except ValidationError as error:
        found = sorted(((_place(node, item), item) for item in error.errors()), key=lambda pair: pair[0].line)
        wrong = [WrongValue(_path(place, item), item["type"], _what(item, model)) for place, item in found]
        problems = [
            f"{name}:{place.line}: {_told(place.words, one)}" for one, (place, _) in zip(wrong, found, strict=True)
        ]
        raise YamlProblem(problems, wrong) from None


class _Loader(yaml.SafeLoader):
    """Loads plain objects by the rules of YAML 1.2."""

    yaml_implicit_resolvers: Final = {}  # type: ignore[misc]  # without those of YAML 1.1

    def scan_plain(self) -> Any:
        """Scan a plain scalar. In YAML 1.2 it may contain ``?``, also inside [] and {}."""
        if "?" not in self.buffer:
            return super().scan_plain()
        self.peek = self._peek_in_text  # type: ignore[method-assign]  # it is called for each character
        try:
            return super().scan_plain()
        finally:
            del self.peek

    def _peek_in_text(self, index: int = 0) -> str:
        """Return the next character, with a letter for a question mark."""
        found: str = super().peek(index)
        return "x" if found == "?" else found


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), "-+0123456789")
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))\Z|\.nan\Z"),
    "-+.0123456789",
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<\Z"), "<")


def _parse(text: str, name: str) -> tuple[yaml.Node | None, Any]:
    """Parse a document into nodes, and into plain objects that are the caller's own."""
    try:
        node, document = (_parse_once if len(text) <= _MAX_KEPT_CHARS else _parse_once.__wrapped__)(text)
        return node, deepcopy(document)
    except _WrongNode as error:
        raise YamlProblem([f"{name}:{error.line}: {error.what}"]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        found = text.splitlines()[mark.line : mark.line + 1] if mark else []
        raise YamlProblem([f"{name}{line}: {_syntax_text(error, *found)}"]) from None
    except yaml.reader.ReaderError as error:
        at = text.count("\n", 0, error.position) + 1
        raise YamlProblem([f"{name}:{at}: a character that YAML does not allow: {text[error.position]!r}"]) from None
    except RecursionError:
        raise YamlProblem([f"{name}: nested too deeply"]) from None
    except (ValueError, LookupError) as error:  # a number of thousands of digits; a tag that does not match its value
        raise YamlProblem([f"{name}: a value that cannot be read: {error}"]) from None


def _syntax_text(error: yaml.MarkedYAMLError, line: str = "") -> str:
    """Say what is wrong with a line that YAML cannot read, and what to do where a person could not tell."""
    problem = str(error.problem or error.context)
    if "{{" in line or "{%" in line:
        return f"text with {'{{' if '{{' in line else '{%'} must be in quotes, or {_BELOW} ({problem})"
    if problem.startswith("mapping values"):
        return f"text with a colon must be in quotes, or {_BELOW}; or the line is indented too far ({problem})"
    if problem.startswith("expected <block end>"):
        return f"this does not continue the lines above: check the indentation and the quotes ({problem})"
    if problem.startswith("found character '\\t'"):
        return f"indent with spaces, not with tabs ({problem})"
    if problem.startswith("found character"):
        return f"put the text in quotes ({problem})"
    return problem


@lru_cache(maxsize=32)
def _parse_once(text: str) -> tuple[yaml.Node | None, Any]:
    """Parse a document. A page of the dashboard asks for the configuration up to ten times; each takes 10 ms."""
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        if node is None:
            return None, {}
        _Checker().check(node)
        document = loader.construct_document(node)
        return node, {} if document is None else document
    finally:
        loader.dispose()


class _WrongNode(Exception):
    """A node that is refused."""

    def __init__(self, node: yaml.Node, what: str) -> None:
        super().__init__(what)
        self.line, self.what = node.start_mark.line + 1, what


class _Checker:
    """Checks the nodes for what would be accepted silently or expand without end."""

    def __init__(self) -> None:
        self._above: set[int] = set()
        self._left = _MAX_NODES

    def check(self, node: yaml.Node) -> None:
        self._left -= 1
        if self._left < 0:
            raise _WrongNode(node, f"aliases stand for more than {_MAX_NODES:,} values")
        if id(node) in self._above:
            raise _WrongNode(node, "an alias that contains itself")
        if node.tag not in _TAGS:
            raise _WrongNode(node, f"the tag {node.tag!r:.80} is not used here: write the value without it")
        self._above.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._check_mapping(node)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self.check(item)
        elif looks_secret(str(node.value)):
            raise _WrongNode(
                node, "this looks like a secret: put it in an environment variable and name it here, and replace it"
            )
        self._above.discard(id(node))

    def _check_mapping(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:  # the second would replace the first silently
                    raise _WrongNode(key, f"{key.value!r:.80} is given twice")
                seen.add(key.value)
            self.check(key)
            self.check(value)


class _Place(NamedTuple):
    """The deepest part of a problem's path that is in the file."""

    line: int
    words: str
    path: tuple[str | int, ...]


def _place(node: yaml.Node | None, item: Any) -> _Place:
    """Return where a problem is.

    Pydantic's paths also have the names of union members. These are not in the file, but may equal a key that is: then
    the next part is a sibling of that key and not below it.
    """
    path = item["loc"]
    line, words = 1 if node is None else node.start_mark.line + 1, ""
    there: tuple[str | int, ...] = ()
    for at, part in enumerate(path):
        if (found := _child(node, part)) is None:
            continue
        step, found_line, value = found
        after = path[at + 1 : at + 2] if at and item["type"] != "missing" else ()
        if after and _child(value, after[0]) is None and _child(node, after[0]) is not None:
            continue
        node, line, words, there = value, found_line, words + step, (*there, part)
    return _Place(line, words.removeprefix("."), there)


def _child(node: yaml.Node | None, part: int | str) -> tuple[str, int, yaml.Node] | None:
    """Return a part of a node: how people call it, its line, and its node."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        name = _child(item, "name") if isinstance(item, yaml.MappingNode) else None
        named = name is not None and isinstance(name[2], yaml.ScalarNode) and name[2].value[:_MAX_NAME_CHARS]
        return f" {named or f'number {part + 1}'},", item.start_mark.line + 1, item
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return f".{part}", key.start_mark.line + 1, value
    return None


def _path(place: _Place, item: Any) -> tuple[str | int, ...]:
    return (*place.path, item["loc"][-1]) if item["type"] == "missing" else place.path


def _told(where: str, wrong: WrongValue) -> str:
    """Say what is wrong where: ``works build, tasks number 1: 'query' is missing``."""
    above, _, below = where.rpartition(",")
    above, below = above.replace(",.", ", "), below.removeprefix(".")
    before = f"{above}: " if above else ""
    if wrong.kind == "missing":
        missing = f"{below}.{wrong.path[-1]}".removeprefix(".")
        return f"{before}{missing!r} is missing"
    if wrong.kind == "extra_forbidden":
        return f"{before}unknown key {below!r} {wrong.what}"
    return ": ".join([", ".join(filter(None, (above, below))), wrong.what]).removeprefix(": ")


def _what(item: Any, model: type[BaseModel]) -> str:
    if item["type"] == "extra_forbidden":
        known = _known_keys(model, item["loc"][:-1])
        close = difflib.get_close_matches(str(item["loc"][-1]), known, 1)
        return f"(did you mean {close[0]!r}?)" if close else f"(known: {', '.join(sorted(known))})"
    if item["type"] == "missing":
        return "is missing"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    message = re.sub(r"^Input should be", "must be", problem_text(item))
    return f"{message[:1].lower()}{message[1:]}, not {_shown(item['input'])}"


def _known_keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Return the known keys at a path. Parts that are not fields (indexes, keys of a map) are skipped."""
    models = [model]
    for part in path:
        fields = [current.model_fields[str(part)] for current in models if part in current.model_fields]
        models = [found for field in fields for found in _models_in(field.annotation)] or models
    return sorted({field.alias or name for current in models for name, field in current.model_fields.items()})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}.get(
        type(value), type(value).__name__
    )
