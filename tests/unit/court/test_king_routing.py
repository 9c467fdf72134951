"""Who takes an event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.court.home import Home
from kingdom.court.king.pending import RoutedFields, RoutingTable
from kingdom.court.packages.installed import load_generals
from kingdom.court.patterns import type_matches
from kingdom.court.trust.config import TrustConfig
from kingdom.court.trust.policy import People, Person, TrustPolicy, author_of
from tests.support.kings import Realm

SOMEBODY = People(Person("github", "grace"))


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return Realm(tmp_path)


def routes(home: Home) -> RoutingTable:
    return RoutingTable(load_generals(home), home, TrustPolicy(TrustConfig()))


def taken_by(
    realm: Realm, kind: str, repo: str | None = None, author: str | None = None, opened_by: str | None = None
) -> str | None:
    route = routes(realm.home).match(RoutedFields(kind, repo, author, SOMEBODY, opened_by))
    return None if route is None else route.general


@pytest.mark.parametrize(
    ("pattern", "kind", "matches"),
    [
        ("github.pr.opened", "github.pr.opened", True),
        ("github.pr.opened", "github.pr.closed", False),
        ("github.pr.*", "github.pr.opened", True),
        ("github.pr.*", "github.pr.review.submitted", True),
        ("github.pr.*", "github.pr", False),
        ("github.pr.*", "github.prx.opened", False),
        ("github.*.opened", "github.issue.opened", True),
        ("github.*.opened", "github.issue.label.opened", False),
        ("*", "github.pr.opened", True),
    ],
)
def test_a_star_stands_for_one_word_and_at_the_end_for_more(pattern: str, kind: str, matches: bool) -> None:
    assert type_matches(pattern, kind) is matches


def test_the_lower_order_is_asked_first_then_exact_types_then_names(realm: Realm) -> None:
    realm.install("gen-b", subscribes=["github.pr.*"])
    realm.install("gen-c", subscribes=["github.pr.*"])
    assert taken_by(realm, "github.pr.opened") == "gen-b"
    realm.install("gen-z", subscribes=["github.pr.opened"])
    assert taken_by(realm, "github.pr.opened") == "gen-z"
    assert taken_by(realm, "github.pr.closed") == "gen-b"
    realm.install("gen-c", subscribes=["github.pr.*"], order=1)
    assert taken_by(realm, "github.pr.opened") == "gen-c"
    assert taken_by(realm, "jira.ticket.created") is None


@pytest.mark.parametrize(
    ("filters", "repo", "author", "taken"),
    [
        ({"repos": ["acme/*"]}, "Acme/Web", None, True),
        ({"repos": ["acme/*"]}, "other/web", None, False),
        ({"repos": ["acme/*"]}, None, None, False),
        ({"exclude_repos": ["acme/old"]}, "acme/old", None, False),
        ({"exclude_repos": ["acme/old"]}, None, None, True),
        ({"authors": ["ann"]}, "acme/web", "Ann", True),
        ({"authors": ["ann"]}, "acme/web", None, False),
        ({"exclude_authors": ["dependabot[bot]"]}, "acme/web", "dependabot[bot]", False),
        ({"exclude_authors": ["*[bot]"]}, "acme/web", "renovate[bot]", False),
        ({"exclude_authors": ["*[bot]"]}, "acme/web", "robert", True),
    ],
)
def test_filters_of_repository_and_author(
    realm: Realm, filters: dict[str, Any], repo: str | None, author: str | None, taken: bool
) -> None:
    realm.install("gen-pr", subscribes=[{"type": "github.pr.*", **filters}])
    assert (taken_by(realm, "github.pr.opened", repo, author) is not None) is taken


def test_what_happens_to_a_pull_request_goes_to_the_general_that_opened_it(realm: Realm) -> None:
    realm.install("gen-any", subscribes=["github.pr.*"], order=1)
    realm.install("gen-fix", subscribes=[{"type": "github.pr.commented", "own": True}])
    realm.install("gen-late", subscribes=["github.pr.commented"], order=500)
    assert taken_by(realm, "github.pr.commented", opened_by="gen-fix") == "gen-fix"
    assert taken_by(realm, "github.pr.commented", opened_by="gen-late") == "gen-late"
    assert taken_by(realm, "github.pr.commented") == "gen-any"
    assert taken_by(realm, "github.pr.reviewed", opened_by="gen-fix") == "gen-any", "it does not take that"


def test_own_takes_nothing_else(realm: Realm) -> None:
    realm.install("gen-fix", subscribes=[{"type": "github.*.commented", "own": True}])
    assert taken_by(realm, "github.pr.commented", opened_by="gen-fix") == "gen-fix"
    for opened_by in (None, "gen-other"):
        assert taken_by(realm, "github.pr.commented", opened_by=opened_by) is None
    assert taken_by(realm, "github.issue.commented") is None


@pytest.mark.parametrize(
    ("payload", "author"),
    [
        ({"author": "ann"}, "ann"),
        ({"sender": {"login": "ann"}}, "ann"),
        ({"user": {"name": "Ann", "id": 7}}, "Ann"),
        ({"author": 7, "user": "ann"}, "ann"),
        ({"author": {"login": None}}, None),
        ({}, None),
    ],
)
def test_the_author_is_found_under_the_names_sources_use(payload: dict[str, Any], author: str | None) -> None:
    assert author_of(payload) == author


def test_a_general_with_a_broken_manifest_keeps_its_events_waiting(realm: Realm) -> None:
    realm.install("gen-last", subscribes=["github.*"])
    realm.install("gen-pr", subscribes=["github.pr.opened", {"type": "x y"}], timeout_seconds="soon")
    found = routes(realm.home).match(RoutedFields("github.pr.opened", people=SOMEBODY))
    assert found is not None
    assert found.general == "gen-pr"
    assert "manifest.yaml" in str(found.problem)
    assert taken_by(realm, "github.pr.closed") == "gen-last"


@pytest.mark.parametrize("text", ["subscribes: [", "- 1\n- 2\n", "\x00", "subscribes: 3\norder: x\n"])
def test_a_manifest_that_says_nothing_takes_nothing(realm: Realm, text: str) -> None:
    realm.install("gen-pr")
    (realm.home.general("gen-pr") / "manifest.yaml").write_text(text)
    assert taken_by(realm, "github.pr.opened") is None
