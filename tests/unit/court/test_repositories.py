"""Which repository a text names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.court.home import Home
from kingdom.court.repositories import known_repositories, named_repository, only_repository

KNOWN = ["acme/shop", "Acme/Web.js"]
HUB = "https://github.com/"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("what does `parse` in acme/shop do?", "acme/shop"),
        ("Fix ACME/SHOP.", "acme/shop"),
        ("`acme/web.js`: why?", "Acme/Web.js"),
        ("see acme/shop#12", "acme/shop"),
        ("acme/shop의 parse는?", "acme/shop"),
        ("in acme/new and acme/shop", "acme/shop"),
        ("in acme/new.", "acme/new"),
        ("https://github.com/pallets/flask/blob/main/src/flask/app.py#L1", "pallets/flask"),
        ("https://www.github.com/acme/shop.git", "acme/shop"),
        ("git@github.com:acme/shop.git please", "acme/shop"),
        ("https://example.org/acme/shop/x", None),
        ("read and/or write src/cart.py", None),
        ("in src/acme/shop/cart.py", None),
        ("./acme/shop", None),
        ("ann@acme/shop", None),
        ("pallets/flask", None),
        ("nothing", None),
        ("", None),
    ],
)
def test_the_repository_that_a_text_names(text: str, named: str | None) -> None:
    assert named_repository(text, KNOWN, HUB) == named


def test_a_court_that_knows_none_takes_any_name() -> None:
    assert named_repository("what does parse in pallets/flask do?", [], HUB) == "pallets/flask"


def test_an_answer_may_name_any() -> None:
    assert named_repository("pallets/flask", KNOWN, HUB) is None
    assert named_repository("pallets/flask", KNOWN, HUB, any_owner=True) == "pallets/flask"


def test_addresses_of_the_own_host_count() -> None:
    assert (
        named_repository("https://git.acme.example:8443/acme/x/pull/1", [], "https://git.acme.example:8443") == "acme/x"
    )


def test_a_court_works_with_what_its_configuration_names(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert (known_repositories(home), only_repository(home)) == ([], None)
    home.config.mkdir()
    github = {"github": {"notifications": False, "repos": ["acme/shop"]}}
    (home.config / "sentinel.yaml").write_text(json.dumps(github))
    assert only_repository(home) == "acme/shop"
    folder = home.general("gen-a")
    folder.mkdir(parents=True)
    (folder / "prompt.md").write_text("")
    manifest = {"name": "gen-a", "description": "x", "subscribes": [{"type": "a.b", "repos": ["ACME/shop", "acme/*"]}]}
    (folder / "manifest.yaml").write_text(json.dumps(manifest))
    assert only_repository(home) is not None, "it is the same one, and a pattern names none"
    (folder / "manifest.yaml").write_text(json.dumps({**manifest, "default_repo": "/srv/repos/web"}))
    assert only_repository(home) is None
    (home.config / "sentinel.yaml").write_text("github: 7\n")
    assert (known_repositories(home), only_repository(home)) == (["/srv/repos/web", "ACME/shop"], None)
