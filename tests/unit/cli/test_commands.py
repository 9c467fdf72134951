"""The commands of the root: what it says of them without importing them, and how their help looks in 80 columns."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from typing import Any

import click
import pytest

from kingdom.base.installation import install_command
from kingdom.cli import app, commands
from kingdom.cli.commands import COMMANDS, SECTIONS, CommandSpec, load, load_all
from tests.support.pages import ROOT


@pytest.mark.parametrize("spec", COMMANDS, ids=lambda spec: spec.name)
def test_the_help_in_the_root_is_the_first_sentence_of_the_command(spec: CommandSpec) -> None:
    text = " ".join((load(spec).help or "").split())
    assert text.startswith(spec.help)
    assert spec.help.endswith(".")
    assert text[len(spec.help) :][:1] in ("", " ")


def test_no_name_stands_for_two_commands() -> None:
    names = [spec.name for spec in COMMANDS]
    assert len(set(names)) == len(names)


def pages() -> Iterator[str]:
    """The words of every command and group."""

    def below(command: Any, words: str) -> Iterator[str]:
        yield words
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, f"{words} {name}")

    yield from below(load_all(click.Group()), "kingdom")


@pytest.mark.parametrize("words", list(pages()))
def test_help_fits_80_columns_and_no_list_of_commands_is_cut(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert app.run([*words.split()[1:], "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    if "COMMAND" in lines[0]:  # a group
        assert [line for line in lines[1:] if "…" in line or "..." in line] == []


def test_the_commands_of_the_root_are_listed_in_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert list(SECTIONS) == ["Start here", "Court", "Workflow", "Bus", "Operate"]
    for title, specs in SECTIONS.items():
        start = lines.index(f"{title}:")
        assert [line.split()[0] for line in lines[start + 1 : start + 1 + len(specs)]] == [spec.name for spec in specs]


@pytest.mark.parametrize(
    ("package", "extra"), [("asyncpg", "postgres"), ("pydantic.main", "court"), ("fastapi", "web")]
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_installed(spec: CommandSpec) -> Any:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(commands, "load", not_installed)
    assert app.run(["status"]) == 1
    name = package.partition(".")[0]
    advice = install_command(extra)
    assert f"[{extra}]'" in advice
    assert capsys.readouterr().err == f"error: this command needs the package {name}: run {advice}\n"


def test_every_package_of_an_extra_is_known_with_that_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    imported_as = {
        re.sub(r"[-_.]+", "-", distribution).lower(): package
        for package, distributions in packages_distributions().items()
        for distribution in distributions
        if not package.startswith("_")
    }
    for extra in ("kafka", "postgres", "court", "web", "psycopg", "sqlalchemy"):
        for requirement in project["optional-dependencies"][extra]:
            name = re.split(r"[^A-Za-z0-9-]", requirement)[0]
            if name != "kingdom":
                assert commands.EXTRA_OF_PACKAGE[imported_as[name]] == extra


def test_a_missing_module_of_no_extra_is_a_mistake_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(spec: CommandSpec) -> Any:
        raise ModuleNotFoundError("No module named 'kingdom.nonsense'", name="kingdom.nonsense")

    monkeypatch.setattr(commands, "load", not_there)
    with pytest.raises(ModuleNotFoundError):
        app.run(["status"])
