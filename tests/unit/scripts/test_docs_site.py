"""The site of the documentation: which pages it has, how they are linked, and what its checker finds."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from scripts.docs_site.links import problems
from scripts.docs_site.nav import navigation
from scripts.docs_site.reference import MODULES, write_modules, write_openapi
from scripts.docs_site.stage import Broken, Stage, place
from tests.support.pages import ROOT


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("README.md", "index.md"),
        ("README.ko.md", "ko/index.md"),
        ("docs/README.md", "contents.md"),
        ("docs/how-to/monitor.md", "how-to/monitor.md"),
        ("docs/how-to/monitor.ko.md", "ko/how-to/monitor.md"),
        ("CHANGELOG.md", "project/changelog.md"),
        ("src/kingdom/bus/worker.py", "source/src/kingdom/bus/worker.py.md"),
        ("src/kingdom/court/templates/generals/gen-pr/prompt.md", None),
    ],
)
def test_each_file_has_its_place(path: str, page: str | None) -> None:
    assert place(PurePosixPath(path)) == PurePosixPath(page or f"source/{path}.md")


def staged(tmp_path: Path, files: dict[str, str]) -> dict[str, str]:
    root, pages = write(tmp_path / "root", files), tmp_path / "pages"
    Stage(root, pages, sorted(files)).fill()
    return {str(path.relative_to(pages)): path.read_text() for path in sorted(pages.rglob("*")) if path.is_file()}


def test_links_lead_to_where_the_site_has_the_file(tmp_path: Path) -> None:
    pages = staged(
        tmp_path,
        {
            "README.md": "[한국어](README.ko.md) [all](docs/README.md#do) <https://example.com/a.md> [x](https://a.b/c.md)",
            "README.ko.md": "[English](README.md)",
            "docs/README.md": "[a](how-to/a.md)",
            "docs/how-to/a.md": "[`x.py`](../../src/x.py)\n```md\n[not](a link.md)\n```\n[e](../../ex)",
            "src/x.py": "x = 1\n",
            "ex/y.sql": "SELECT 1\n",
            "never/linked.py": "",
        },
    )
    assert set(pages) == {
        "index.md", "ko/index.md", "contents.md", "how-to/a.md", "source/src/x.py.md", "source/ex/index.md",
        "source/ex/y.sql.md",
    }  # fmt: skip
    assert pages["index.md"].startswith("[한국어](ko/index.md) [all](contents.md#do) <https://example.com/a.md>")
    assert pages["ko/index.md"] == "[English](../index.md)"
    assert "[`x.py`](../source/src/x.py.md)\n```md\n[not](a link.md)\n```\n" in pages["how-to/a.md"]
    assert "[e](../source/ex/index.md)" in pages["how-to/a.md"]
    assert "```python\nx = 1\n" in pages["source/src/x.py.md"]
    assert "[y.sql](y.sql.md)" in pages["source/ex/index.md"]


def test_a_link_to_nothing_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"README\.md: docs/gone\.md does not exist"):
        staged(tmp_path, {"README.md": "[gone](docs/gone.md)"})


def test_the_navigation_goes_by_intent_and_names_every_page() -> None:
    nav = navigation((ROOT / "docs" / "README.md").read_text(), [PurePosixPath("ko/index.md")])
    assert [next(iter(part)) for part in nav] == [
        "Overview", "Tutorials", "How-to guides", "Reference", "Explanation", "Project", "한국어",
    ]  # fmt: skip

    def below(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in below(part)]

    named = below(nav)
    pages = [place(path.relative_to(ROOT)) for path in map(PurePosixPath, (ROOT / "docs").rglob("*.md"))]
    assert {str(page) for page in pages} <= set(named)
    assert {f"{page}.md" for page in MODULES.values()} <= set(named)
    assert len(named) == len(set(named))


def test_modules_and_operations_have_pages(tmp_path: Path) -> None:
    write_modules(tmp_path)
    assert "::: kingdom.bus\n" in (tmp_path / "reference/python/bus.md").read_text()
    assert "::: kingdom.workflow.engine\n" in (tmp_path / "reference/python/workflow.md").read_text()
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Git"}}}}
    operation = {
        "tags": ["gits"],
        "summary": "Register",
        "operationId": "createGit",
        "description": "For <name>.",
        "parameters": [{"name": "dry", "in": "query", "required": True, "description": "a | b"}],
        "requestBody": body,
        "responses": {"200": {"$ref": "#/components/responses/Done"}},
    }
    field = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "description": "Where."}
    document = {
        "tags": [{"name": "gits"}],
        "paths": {"/api/gits": {"post": operation}},
        "components": {
            "schemas": {"Git": {"properties": {"urls": field}, "required": ["urls"]}},
            "responses": {"Done": {"description": "Done."}},
        },
    }
    write_openapi(tmp_path, document)
    page = (tmp_path / "reference/openapi.md").read_text()
    for words in (
        "`POST /api/gits`, `createGit`",
        "For &lt;name>.",
        "| `dry` | query, required | a \\| b |",
        "| `urls` (required) | list of string or null | Where. |",
        "| 200 | Done. |",
    ):
        assert words in page, words
    assert (tmp_path / "reference/openapi.json").exists()


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="b.html">', "a.html: b.html does not exist"),
        ('<a href="#b">', "a.html: #b has no such anchor"),
        ('<a href="c.html#b">', "a.html: c.html#b has no such anchor"),
        ('<a href="/c.html">', "a.html: /c.html is absolute: it does not work from a folder"),
        ('<a href="../../x">', "a.html: ../../x leaves the site"),
        ('<img src="c.png">', "a.html: c.png does not exist"),
        ('<script src="https://x.example/y.js">', "a.html: loads https://x.example/y.js from another host"),
        ('<link rel="preconnect" href="//x.example">', "a.html: loads //x.example from another host"),
        ('<p style="background: url(https://x.example/y)">', "a.html: loads https://x.example/y from another host"),
        ('<pre class="mermaid">', "a.html: a diagram that needs a library of another host"),
    ],
)
def test_what_is_wrong_with_a_built_page_is_found(html: str, problem: str, tmp_path: Path) -> None:
    assert problems(write(tmp_path, {"a.html": html, "c.html": "<p id=c>"})) == [problem]


def test_a_whole_site_without_a_problem(tmp_path: Path) -> None:
    page = '<h1 id="a b"></h1><a href="#a%20b"></a><a href="d/e.html#c"></a><a href="https://x.example"></a>'
    styles = "a { background: url(x.svg), url(data:image/png;base64,AA) }"
    assert (
        problems(write(tmp_path, {"a.html": page, "d/e.html": '<p id="c"><a href="../a.html">', "s.css": styles})) == []
    )
    write(tmp_path, {"s.css": "@import 'https://x.example/y.css'; a { b: url(//x.example/f.woff) }"})
    assert problems(tmp_path) == [
        "s.css: loads https://x.example/y.css from another host",
        "s.css: loads //x.example/f.woff from another host",
    ]


def test_an_empty_site_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path) == [f"{tmp_path} has no pages"]
