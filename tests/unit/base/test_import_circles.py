"""The check that no module imports another in a circle finds circles, and only those that exist at run time."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "import-circles"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("import_circles", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def circles(script: ModuleType, folder: Path, **modules: str) -> list[list[str]]:
    package = folder / "pack"
    package.mkdir()
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    return list(script.find_circles(script.import_graph(folder)))


def test_a_circle_is_found_with_the_imports_that_make_it(script: ModuleType, tmp_path: Path) -> None:
    found = circles(
        script, tmp_path, a="from pack.b import x", b="import pack.c", c="from pack import a", d="import pack.a"
    )
    assert len(found) == 1
    assert set(found[0]) == {"pack.a", "pack.b", "pack.c"}
    assert found[0][0] == found[0][-1]
    following = dict(zip(found[0], found[0][1:], strict=False))
    assert following == {"pack.a": "pack.b", "pack.b": "pack.c", "pack.c": "pack.a"}


def test_imports_in_functions_and_for_types_do_not_count(script: ModuleType, tmp_path: Path) -> None:
    lazy = "def f() -> None:\n    import pack.b\n"
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pack.a\n"
    assert circles(script, tmp_path, a=lazy, b=types) == []


def test_imports_in_blocks_of_a_module_count(script: ModuleType, tmp_path: Path) -> None:
    tried = "try:\n    import pack.b\nexcept ImportError:\n    pass\n"
    assert len(circles(script, tmp_path, a=tried, b="import pack.a")) == 1
