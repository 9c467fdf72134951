"""What the doctor says of the files below config/: mistakes with their line, missing secrets, tiers in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.sandbox.sandbox import Bubblewrap
from kingdom.bus import Check
from kingdom.court.config import SystemConfig
from kingdom.court.doctor import check_config_files, check_sources
from kingdom.court.home import Home
from kingdom.court.packages.installed import load_generals

MANIFEST = "name: gen-pr\ndescription: For tests.\nengine: claude\nsubscribes: [github.pr.*]\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    folder = found.general("gen-pr")
    folder.mkdir(parents=True)
    (folder / "manifest.yaml").write_text(MANIFEST)
    (folder / "prompt.md").write_text("Do it.")
    return found


def write(home: Home, name: str, text: str) -> None:
    (home.config / name).write_text(text)


def found(home: Home, **env: str) -> dict[str, list[Check]]:
    checks: dict[str, list[Check]] = {}
    for check in check_config_files(home, env):
        checks.setdefault(check.name, []).append(check)
    return checks


def test_a_court_without_them_is_in_order(home: Home) -> None:
    checks = found(home)
    assert set(checks) == {"sentinel.yaml", "envoy.yaml", "trust.yaml", "chamberlain.yaml"}
    assert {check.level for group in checks.values() for check in group} == {"ok"}


@pytest.mark.parametrize("name", ["sentinel.yaml", "envoy.yaml", "trust.yaml", "chamberlain.yaml"])
def test_every_mistake_has_its_line_and_what_to_do(home: Home, name: str) -> None:
    write(home, name, "# first line\nnonsense: 1\nmore: 2\n")
    (first, second) = found(home)[name]
    assert (first.level, second.level) == ("error", "error")
    assert f"{name}:2: unknown key 'nonsense'" in first.message
    assert f"{name}:3: unknown key 'more'" in second.message
    assert first.hint == "fix that line"


def test_secrets_that_are_not_here_are_told_by_their_names(home: Home) -> None:
    hooks = "webhooks:\n  github: {}\n  generic:\n    ci: {token_env: CI_TOKEN}\n"
    write(home, "sentinel.yaml", "github:\n  notifications: true\n" + hooks)
    ok, *warnings = found(home, GITHUB_TOKEN="x")["sentinel.yaml"]
    assert (ok.level, ok.message) == ("ok", "watches github")
    assert [check.level for check in warnings] == ["warning", "warning"]
    assert "GITHUB_WEBHOOK_SECRET" in warnings[0].message
    assert "webhooks.generic.ci" in warnings[1].message
    write(home, "envoy.yaml", "slack:\n  enabled: true\n")
    (check,) = found(home)["envoy.yaml"]
    assert check.level == "warning"
    assert "SLACK_BOT_TOKEN" in check.message


def test_a_general_for_which_nothing_is_watched(home: Home) -> None:
    (home.general("gen-pr") / "manifest.yaml").write_text(
        MANIFEST.replace("[git", "[jira.ticket.assigned, test.x, git")
    )

    def sources(**system: Any) -> list[str]:
        checks = check_sources(home, SystemConfig.model_validate(system), load_generals(home))
        assert {(check.name, check.level) for check in checks} <= {("general gen-pr", "warning")}
        return [f"{check.message}; {check.hint}" for check in checks]

    hint = "uncomment {0}: in config/sentinel.yaml, then: kingdom connect {0}"
    jira = f"it takes jira.ticket.assigned, and nothing watches jira; {hint.format('jira')}"
    assert sources() == [f"it takes github.pr.*, and nothing watches github; {hint.format('github')}", jira]
    assert sources(machine={"name": "b", "database": "postgresql://x/", "joined": True}) == []
    write(home, "sentinel.yaml", "webhooks:\n  github: {}\n")
    assert sources() == [jira]
    for text in (
        "local: {}\n",
        "nonsense: 1\n",
        "github: {}\njira: {url: https://x.atlassian.net, email: a@x.example}\n",
    ):
        write(home, "sentinel.yaml", text)
        assert sources() == []


def test_slack_without_anybody_who_is_heard(home: Home) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}

    def warnings() -> list[str]:
        return [check.message for check in found(home, **tokens)["envoy.yaml"] if check.level == "warning"]

    (taken,) = (one for one in warnings() if one.startswith("no general takes"))
    assert sorted(warnings()) == sorted([taken, "no Slack user is allowed"])
    write(home, "trust.yaml", "rules: [{source: slack, users: [U1], tier: trusted}]\n")
    assert warnings() == [taken]


def test_one_mistake_is_told_once(home: Home) -> None:
    write(home, "trust.yaml", "tiers:\n  visitor: {profile: raed}\nrules:\n  - {source: github, tier: visitor}\n")
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
    errors = [check for checks in found(home, **tokens).values() for check in checks if check.level == "error"]
    assert [error.name for error in errors] == ["trust.yaml"]
    assert "trust.yaml:2: tiers.visitor.profile: must be 'read', 'edit' or 'full'" in errors[0].message


def test_tiers_that_lead_nowhere(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.court.trust.policy.find_bubblewrap", lambda: Bubblewrap(None, problem="not installed"))
    tiers = "tiers:\n  a: {generals: [gen-gone]}\n  b: {sandbox: true}\n  c: {profile: read}\n"
    write(home, "trust.yaml", tiers + "rules:\n  - {source: jira, tier: a}\n  - {source: github, tier: b}\n")
    ok, *warnings = (check.message for check in found(home)["trust.yaml"])
    assert ok == "2 rules; everybody else: refuse"
    assert warnings == [
        "tier a: no general is called gen-gone",
        "tier a can use none of the installed generals",
        "tier b can use none of the installed generals",
        "no rule uses the tier c",
    ]
