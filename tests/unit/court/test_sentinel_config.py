"""``config/sentinel.yaml``: mistakes are told with file and line, secrets are refused, no file means no watching."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.court.errors import InvalidConfig
from kingdom.court.home import Home
from kingdom.court.init_home import TEMPLATES_DIR
from kingdom.court.sentinel.config import SentinelConfig, SentinelConfigFile, load_sentinel, read_secret


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    found.config.mkdir()
    return found


def write(home: Home, text: str) -> None:
    (home.config / "sentinel.yaml").write_text(text)


def test_without_a_file_and_with_the_template_nothing_is_watched(home: Home) -> None:
    assert load_sentinel(home) == SentinelConfig()
    write(home, (TEMPLATES_DIR / "sentinel.yaml").read_text())
    assert load_sentinel(home) == SentinelConfig()


def test_the_template_without_its_marks_is_a_valid_file(home: Home) -> None:
    lines = (TEMPLATES_DIR / "sentinel.yaml").read_text().splitlines()
    write(home, "\n".join(line.removeprefix("# ") for line in lines[2:]))
    config = load_sentinel(home)
    assert config.github is not None
    assert config.jira is not None
    assert config.local is not None
    assert config.jira.repos == {"SHOP": "acme/shop"}
    assert list(config.webhooks.generic) == ["ci"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("github:\n  tokn_env: X\n", "sentinel.yaml:2: unknown key 'github.tokn_env' (did you mean 'token_env'?)"),
        ("github:\n  notifications: false\n", "nothing to watch"),
        ("github:\n  url: http://api.github.com\n", "sent unencrypted"),
        ("github:\n  url: https://me:pw@api.github.com\n", "do not put a password"),
        ("github:\n  token_env: ghp_0123456789abcdef0123\n", "looks like a secret"),
        ("github:\n  repos: [acme]\n", "sentinel.yaml:2"),
        ("jira:\n  projects: [SHOP]\n", "'jira.url' is missing"),
        ("jira:\n  url: https://a.example\n  jql: a = b ORDER BY c\n", "remove ORDER BY"),
        ("gitlab: {}\n", "unknown key 'gitlab'"),
        ("webhooks:\n  generic:\n    Ci: {token_env: X}\n", "sentinel.yaml:3"),
        ("webhooks:\n  generic:\n    github: {token_env: X}\n", "webhooks.github"),
        ("webhooks:\n  generic:\n    ci: {}\n", "token_env' is missing"),
    ],
)
def test_mistakes_are_told_with_their_line(home: Home, text: str, told: str) -> None:
    write(home, text)
    with pytest.raises(InvalidConfig) as caught:
        load_sentinel(home)
    assert told in str(caught.value)


def test_a_file_that_becomes_wrong_changes_nothing_but_is_told(home: Home) -> None:
    file = SentinelConfigFile(home)
    assert file.load().problem is None
    write(home, "local: {}\n")
    assert file.load().config.local is not None
    write(home, "local: [\n")
    loaded = file.load()
    assert loaded.config.local is not None
    assert loaded.problem is not None
    (home.config / "sentinel.yaml").unlink()
    assert file.load().config == SentinelConfig()


def test_a_token_that_is_not_there_is_told_by_the_name_of_its_variable() -> None:
    assert read_secret("TOKEN", "github", {"TOKEN": " abc\n"}) == "abc"
    with pytest.raises(InvalidConfig, match="TOKEN is not set"):
        read_secret("TOKEN", "github", {"TOKEN": " "})
    with pytest.raises(InvalidConfig, match="copy the token again"):
        read_secret("TOKEN", "github", {"TOKEN": "a\u200bb"})
