"""Finding everything that is wrong with a general before it is given any work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import SandboxedEnvironment

from kingdom.court.packages.loading import INSTRUCTIONS, MANIFEST, PROMPT
from kingdom.court.packages.manifest import Manifest
from kingdom.yamlfile import YamlProblem, load_yaml, read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PROMPT_VARIABLES: Final = frozenset(
    {
        "task",  # its id, type and priority
        "event",  # id, type, repo and source of what caused it
        "data",  # the payload, as fenced data
        "frozen",  # the hash of its words, and what to do when they are others now
        "memory",  # what the general remembers, as fenced data
        "report",  # how the soldier reports
        "resume",  # whether this goes on with an earlier conversation
        "question",  # what was asked then
        "answer",  # what a person answered, as fenced data
        "repo_path",  # the worktree
        "pull",  # a pull request: its head and base in the repository
        "previous_results",  # of the same subject, as fenced data
        "previous_error",  # why the last try failed, as fenced data
    }
)
"""What a prompt may use."""

_MAX_INSTRUCTIONS: Final = 200_000  # bytes


def check_package(folder: Path, engines: Collection[str] | None = None) -> list[str]:
    """Everything that is wrong with a general in its folder, each as ``file:line: what``; nothing: an empty list.

    ``engines`` are the names of the engines there are; without them the engine is not checked.
    """
    if not folder.is_dir():
        return [f"{folder}: no such folder"]
    problems: list[str] = []
    manifest = None
    try:
        context = {"folder": folder.resolve().name, "engines": engines}
        manifest = load_yaml(folder / MANIFEST, Manifest, context)
    except YamlProblem as error:
        problems += error.problems
    if manifest is None or manifest.mode == "agent":
        problems += _check_prompt(folder / PROMPT, manifest.prompt_max_bytes if manifest else None)
    if (folder / INSTRUCTIONS).exists():
        problems += _check_size(folder / INSTRUCTIONS, _MAX_INSTRUCTIONS, f"{_MAX_INSTRUCTIONS:,} bytes")
    return problems


def _check_prompt(path: Path, limit: int | None) -> list[str]:
    try:
        text = read_text(path)
    except YamlProblem as error:
        return error.problems
    problems = [] if limit is None else _check_size(path, limit, f"prompt_max_bytes ({limit:,}) of the manifest")
    if not text.strip():
        return [*problems, f"{path}:1: empty; it is the template of the general's prompts"]
    return [*problems, *(f"{path}:{line}: {what}" for line, what in sorted(check_template(text)))]


def _check_size(path: Path, limit: int, named: str) -> list[str]:
    try:
        size = len(read_text(path).encode())
    except YamlProblem as error:
        return error.problems
    return [f"{path}: {size:,} bytes, more than {named}: make it shorter"] if size > limit else []


def check_template(text: str) -> list[tuple[int, str]]:
    """What is wrong with a prompt template, as lines and words."""
    environment = SandboxedEnvironment()
    try:
        tree = environment.parse(text)
        environment.compile(text)  # finds filters and tests that do not exist
    except TemplateSyntaxError as error:
        return [(error.lineno, f"not a valid template: {error.message}")]
    return [*_unknown_variables(tree), *_other_files(tree)]


def _unknown_variables(tree: nodes.Template) -> Iterator[tuple[int, str]]:
    known = ", ".join(sorted(PROMPT_VARIABLES))
    for name in find_undeclared_variables(tree) - PROMPT_VARIABLES:
        first = min((node.lineno for node in tree.find_all(nodes.Name) if node.name == name), default=1)
        yield first, f"{name!r} is not known here: a prompt may use {known}"


def _other_files(tree: nodes.Template) -> Iterator[tuple[int, str]]:
    for node in tree.find_all((nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport)):
        yield node.lineno, "a prompt is one file: it cannot include, extend or import another"
