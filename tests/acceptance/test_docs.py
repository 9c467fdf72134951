"""The documentation is true: its code runs, its commands exist, its links lead somewhere, its lists are complete."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import kingdom.bus
from kingdom.cli.commands import load_all
from tests.support.command import script
from tests.support.pages import PAGES, ROOT, Block, anchors, blocks, headings, links, name_of
from tests.support.reader import DATABASE, Reader

DOCS = ROOT / "docs"
README, TWIN = ROOT / "README.md", ROOT / "README.ko.md"
# The Korean README has the very same code.
RUNNING = [page for page in PAGES if page != TWIN and any(block.mark == "run" for block in blocks(page))]
ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def reference(name: str) -> str:
    return (DOCS / "reference" / name).read_text("utf-8")


def by_name(page: Path) -> str:
    return name_of(page)


# ── what is written is run ────────────────────────────────────────────────────────────────────────────────────


def needs_database(page: Path) -> bool:
    return any(block.mark == "run" and DATABASE in block.text for block in blocks(page))


def create_database(server: str, name: str) -> str:
    """Make an empty database on the server and return its URL."""
    import asyncpg

    async def create() -> None:
        connection = await asyncpg.connect(server)
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()

    asyncio.run(create())
    return re.sub(r"/postgres(?=\?|$)", f"/{name}", server)


@pytest.fixture
def database(request: pytest.FixtureRequest, postgres_server: str) -> str:
    """A database of its own, since drivers other than ours know no schema option."""
    return create_database(postgres_server, re.sub(r"\W+", "_", request.node.name.lower())[-50:])


@pytest.mark.parametrize("page", [page for page in RUNNING if not needs_database(page)], ids=by_name)
def test_what_a_page_marks_as_runnable_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(page, tmp_path, monkeypatch, database="")


@pytest.mark.postgres
@pytest.mark.parametrize("page", [page for page in RUNNING if needs_database(page)], ids=by_name)
def test_what_a_page_marks_as_runnable_runs_on_postgresql(
    page: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(page, tmp_path, monkeypatch, database)


def follow(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    monkeypatch.chdir(folder)
    with Reader(monkeypatch, database) as reader:
        for block in blocks(page):
            reader.follow(block)


@pytest.mark.parametrize(
    "block", [block for block in ALL_BLOCKS if block.language == "python"], ids=lambda block: block.place
)
def test_python_in_the_pages_is_python(block: Block) -> None:
    tree = compile(block.text, block.place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "kingdom.bus":
            unknown = {alias.name for alias in node.names} - set(dir(kingdom.bus)) - {"logs", "metrics", "testing"}
            assert not unknown, f"{block.place} imports what kingdom.bus does not have"


@pytest.fixture(params=["sqlite", "postgresql"])
def tutorial_url(request: pytest.FixtureRequest) -> str:
    return "sqlite:shop.db" if request.param == "sqlite" else str(request.getfixturevalue("database"))


@pytest.mark.postgres
def test_the_tutorial_survives_kill_nine(tutorial_url: str, tmp_path: Path) -> None:
    """Writes the tutorial's files and does what it says, with real processes."""
    page = DOCS / "tutorial" / "first-event-bus.md"
    files = {block.mark.partition(":")[2].strip(): block.text for block in blocks(page) if block.mark[:5] == "file:"}
    assert {"publish.py", "worker.py"} <= set(files)
    for name, text in files.items():
        assert "sqlite:shop.db" in text
        (tmp_path / name).write_text(text.replace("sqlite:shop.db", tutorial_url))

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-u", "-W", "error", name]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def line_of(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    with start("publish.py") as publisher:
        said, _ = publisher.communicate(timeout=30)
    assert (publisher.returncode, said.strip()) == (0, "10 orders published")
    packed = []
    with start("worker.py") as first:
        while len(packed) < 3:
            packed.append(line_of(first))
        first.kill()
        packed += [line for line in (first.stdout or ()) if line.endswith("\n")]
    with start("worker.py") as second:
        try:
            while len({line.split(" (")[0].strip() for line in packed}) < 10:
                packed.append(line_of(second))
                assert packed[-1], f"the worker ended early, after {packed}"
        finally:
            second.terminate()
        second.communicate(timeout=30)
    assert second.returncode == 0
    assert {line.split(" (")[0].strip() for line in packed} == {f"packed order {number}" for number in range(1, 11)}


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Where and how the pages call a program, up to the first pipe."""
    for block in ALL_BLOCKS:
        for command, _ in block.commands if block.language == "console" else ():
            words = shlex.split(command, comments=True)
            if words and words[0] == program:
                stop = next((i for i, word in enumerate(words) if word in ("|", ">", "&", "&&", ";")), len(words))
                yield block.place, words[1:stop]


@pytest.mark.parametrize(("place", "arguments"), list(commands("kingdom")), ids=lambda value: str(value)[:60])
def test_kingdom_commands_in_the_pages_exist_with_these_options(place: str, arguments: list[str]) -> None:
    command: Any = load_all(click.Group())
    context = None
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, f"{place}: there is no command {arguments[0]}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if arguments in (["--help"], ["--version"]):
        return
    if hasattr(command, "commands"):
        assert not arguments, f"{place}: {arguments}"
        return
    takes_url = any("--url" in parameter.opts for parameter in command.params)
    required = ["--url", "memory:"] if takes_url and "--url" not in arguments else []
    context = command.make_context("kingdom", [*arguments, *required])  # raises on what it does not know
    assert context.params


def test_make_targets_and_examples_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {words[0] for _, words in commands("make")}
    assert {"demo", "test"} <= called <= targets
    cases = re.findall(r"^    \"([a-z-]+)\":", (ROOT / "bench" / "cases" / "__init__.py").read_text(), re.MULTILINE)
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    asked = re.findall(r"make bench ARGS=\"--only ([a-z-]+)\"", text)
    assert asked
    assert set(asked) <= set(cases)
    modules = [words[1] for _, words in commands("python") if words[0] == "-m" and words[1].startswith("examples.")]
    assert modules
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


# ── links and twins ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)} links to {link}: {sorted(anchors(target))}"


def test_the_index_names_every_page() -> None:
    index = DOCS / "README.md"
    named = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert [name_of(page) for page in DOCS.rglob("*.md") if page != index and page.resolve() not in named] == []


def test_the_two_readmes_are_twins() -> None:
    assert [level for level, _ in headings(README)] == [level for level, _ in headings(TWIN)]
    assert [(b.language, b.mark, b.text) for b in blocks(README)] == [
        (b.language, b.mark, b.text) for b in blocks(TWIN)
    ]
    assert _files(README) == _files(TWIN)
    rows = [re.findall(r"^\|", page.read_text("utf-8"), re.MULTILINE) for page in (README, TWIN)]
    assert len(rows[0]) == len(rows[1])


def _files(page: Path) -> list[str]:
    """What a page links to in the repository, but for itself and its twin."""
    return [link for link in links(page) if link not in (README.name, TWIN.name) and not link.startswith("#")]


def test_pages_name_no_place_of_the_machine_they_were_written_on() -> None:
    for page in PAGES:
        found = re.findall(r"/(?:root|home|Users)/\S*", page.read_text("utf-8"))
        assert not found, f"{name_of(page)}: {found}"


# ── reference pages are complete ──────────────────────────────────────────────────────────────────────────────


def test_the_command_line_reference_is_the_one_the_program_gives() -> None:
    done = script(ROOT / "scripts" / "cli-reference", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_api_reference_has_every_public_name_and_parameter() -> None:
    page = reference("python-api.md")
    assert [name for name in kingdom.bus.__all__ if f"`{name}" not in page] == []
    for owner in (kingdom.bus.EventBus, kingdom.bus.Worker, kingdom.bus.Dispatcher, kingdom.bus.Inbox):
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") or name == "__init__":
                missing = [p for p in inspect.signature(member).parameters if p != "self" and p not in page]
                assert not missing, f"{owner.__name__}.{name}: {missing}"
                assert name == "__init__" or name in page, f"{owner.__name__}.{name}"
    for function in (kingdom.bus.connect, kingdom.bus.publish_sync, kingdom.bus.RetryPolicy, kingdom.bus.Envelope):
        assert [p for p in inspect.signature(function).parameters if p not in page] == [], function


def test_the_error_reference_has_the_tree_of_the_code() -> None:
    from kingdom.bus import errors

    page = reference("errors.md")
    tree = (errors.__doc__ or "").partition("::\n\n")[2]
    for line in filter(None, map(str.strip, tree.splitlines())):
        assert line in page, f"errors.md lacks: {line}"
    raised = [name for name, item in vars(errors).items() if inspect.isclass(item) and issubclass(item, Exception)]
    assert [name for name in raised if f"`{name}`" not in page] == []


def test_the_metrics_reference_has_every_metric() -> None:
    from kingdom.bus.metrics import Metrics

    page = reference("metrics.md")
    names = [metric.name for metric in Metrics().collect()]
    assert len(names) > 5
    assert [name for name in names if name not in page] == []


def test_the_metrics_reference_has_every_metric_of_a_court() -> None:
    from kingdom.court.metrics import CourtMetrics

    names = re.findall(r"``\{prefix\}_(\w+)", CourtMetrics.__doc__ or "")
    assert len(names) > 10
    assert [name for name in names if f"`kingdom_{name}`" not in reference("metrics.md")] == []


@pytest.mark.parametrize("page", ["postgresql-schema.md"])
def test_the_schema_reference_has_every_column_and_index(page: str) -> None:
    text = reference(page)
    folder = ROOT / "src/kingdom/bus/transports/postgresql/migrations"
    sql = "\n".join(path.read_text("utf-8") for path in sorted(folder.glob("*.sql")))
    sql = re.sub(r"\$\$.*?\$\$", "", sql, flags=re.DOTALL)  # functions have variables
    kinds = "bigint|timestamptz|integer|smallint|text|jsonb|json|boolean"
    columns = re.findall(rf"(?:^   |ADD COLUMN) ([a-z_]+) +(?:{kinds})\b", sql, re.MULTILINE)
    assert {"outcome", "changed_at"} <= set(columns)
    indexes = re.findall(r"CREATE INDEX (\w+)", sql)
    assert len(columns) > 20
    assert [name for name in [*columns, *indexes] if f"`{name}`" not in text] == []
    for path in folder.glob("*.sql"):
        assert path.stem in text


def test_the_url_reference_has_every_option() -> None:
    from kingdom.bus.transports.postgresql._connections import OWN_OPTIONS

    page = reference("urls-and-options.md")
    assert [name for name in OWN_OPTIONS if f"`{name}`" not in page] == []
    schemes = {path.stem for path in (ROOT / "src/kingdom/bus/transports").iterdir() if not path.name.startswith("_")}
    assert [scheme for scheme in schemes if f"`{scheme}:" not in page] == []


def test_the_glossary_names_modules_that_exist_and_no_term_twice() -> None:
    rows = re.findall(r"^\| (.+?) \| .+ \| `(kingdom[\w.]*)` \|$", reference("glossary.md"), re.MULTILINE)
    assert len(rows) > 60
    assert [name for _, name in rows if importlib.util.find_spec(name) is None] == []
    assert len({term for term, _ in rows}) == len(rows)
