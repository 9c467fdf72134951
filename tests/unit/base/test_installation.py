"""The command that adds an extra to this installation, however it came here."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kingdom.base import installation
from kingdom.base.installation import install_command

COMMIT = "0123456789012345678901234567890123456789"


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'kingdom[web]'"),
        ("not JSON", "pip install 'kingdom[web]'"),
        ([], "pip install 'kingdom[web]'"),
        ({"url": "file://{here}", "dir_info": {}}, "pip install '{here}[web]'"),
        ({"url": "file://{here}", "dir_info": {"editable": True}}, "pip install -e '{here}[web]'"),
        ({"url": "file://{here}/a%20b.whl", "archive_info": {}}, "pip install '{here}/a b.whl[web]'"),
        ({"url": "file://{here}/gone", "dir_info": {}}, "pip install '.[web]' in a checkout of Kingdom"),
        (
            {"url": "https://example.com/kingdom.whl", "archive_info": {}},
            "pip install 'kingdom[web] @ https://example.com/kingdom.whl'",
        ),
        (
            {"url": "https://example.com/kingdom.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pip install 'kingdom[web] @ git+https://example.com/kingdom.git@{COMMIT}'",
        ),
    ],
)
def test_an_extra_comes_from_where_kingdom_came_from(
    source: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b.whl").touch()
    text = source if source is None or isinstance(source, str) else json.dumps(source).replace("{here}", str(tmp_path))
    monkeypatch.setattr(installation, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    assert install_command("web") == command.replace("{here}", str(tmp_path))


def test_a_copy_that_was_not_installed_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", unknown)
    assert install_command("court") == "pip install 'kingdom[court]'"
