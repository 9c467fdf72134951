"""``config/system.yaml``: what is allowed, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.yamlfile import load_yaml
from kingdom.court.config import SystemConfig, check_timezone, load_system
from kingdom.court.errors import InvalidConfig, UnsetVariable
from kingdom.court.home import Home
from kingdom.court.init_home import TEMPLATES_DIR, local_timezone


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "config").mkdir()
    return Home(tmp_path)


def written(home: Home, text: str) -> Home:
    (home.config / "system.yaml").write_text(text, encoding="utf-8")
    return home


def problems_of(home: Home, text: str) -> list[str]:
    with pytest.raises(InvalidConfig) as caught:
        load_system(written(home, text))
    before = f"{home.config / 'system.yaml'}:"
    return [line.removeprefix(before) for line in str(caught.value).splitlines()]


def test_an_empty_file_is_all_defaults(home: Home) -> None:
    config = load_system(written(home, ""))
    assert config == SystemConfig()
    assert config.concurrency.max_soldiers == 3
    assert config.retries.killed == 2
    assert config.budget.daily_usd is None
    assert config.queue_url(home) == f"files://{home.root}/queue"


def test_the_shipped_file_says_the_defaults_and_nothing_else() -> None:
    assert load_yaml(TEMPLATES_DIR / "system.yaml", SystemConfig) == SystemConfig()


def test_every_key_the_shipped_file_shows_as_a_comment_exists(home: Home) -> None:
    lines = (TEMPLATES_DIR / "system.yaml").read_text(encoding="utf-8").splitlines()
    shown = [line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line for line in lines[3:]]
    text = "\n".join(line for line in shown if not line.lstrip().startswith("transport_env"))
    config = load_system(written(home, text))
    assert config.engines["claude"].env == ["ANTHROPIC_API_KEY"]
    assert config.queue.transport == "postgresql://db.example/kingdom"
    assert config.budget.daily_tokens == 5_000_000


def test_every_mistake_is_told_with_its_line_and_what_is_allowed(home: Home) -> None:
    text = """\
name: ""
locale: fr
timezone: Mars/X
host: docker
concurrency: {max_soldiers: 0}
question:
  deadline_hours: -1
  deadline: 4
budget:
  warning_percent: 101
  daily_usd: -0.5
engines:
  claude:
    env: [lower, OK]
  "../x": {}
  codex: {env: {HOME: 7}, args: [1]}
  other: {env: KEY}
"""
    assert problems_of(home, text) == [
        "1: name: string should have at least 1 character, not ''",
        "2: locale: must be 'en' or 'ko', not 'fr'",
        "3: timezone: unknown time zone 'Mars/X': use a name such as Europe/Berlin, Asia/Seoul or UTC",
        "4: host: must be 'process' or 'tmux', not 'docker'",
        "5: concurrency.max_soldiers: must be greater than or equal to 1, not 0",
        "7: question.deadline_hours: must be greater than 0, not -1",
        "8: unknown key 'question.deadline' (did you mean 'deadline_hours'?)",
        "10: budget.warning_percent: must be less than or equal to 100, not 101",
        "11: budget.daily_usd: must be greater than or equal to 0, not -0.5",
        "14: engines.claude.env number 1: must be the name of a variable, such as GITHUB_TOKEN, not 'lower'",
        "15: engines.../x: must be small letters, digits, _ and -, such as gen-pr, not '../x'",
        "16: engines.codex.args number 1: must be a valid string, not 1",
        "16: engines.codex.env.HOME: must be a valid string, not 7",
        "17: engines.other.env: must be a list of names [NAME, …] or a mapping {NAME: value}, not 'KEY'",
    ]


@pytest.mark.parametrize("word", ["yes", "'3'", "3.5", "true", ".inf", "null"])
def test_a_number_is_a_number(home: Home, word: str) -> None:
    (problem,) = problems_of(home, f"concurrency:\n  max_soldiers: {word}\n")
    assert problem.startswith("2: concurrency.max_soldiers: must be a ")


@pytest.mark.parametrize("word", [".inf", ".nan"])
def test_a_budget_is_finite(home: Home, word: str) -> None:
    assert problems_of(home, f"budget: {{daily_usd: {word}}}\n")[0].startswith("1: budget.daily_usd: must be a finite")


def test_a_missing_file_is_told(home: Home) -> None:
    with pytest.raises(InvalidConfig, match=r"system\.yaml: No such file or directory$"):
        load_system(home)


@pytest.mark.parametrize(
    ("transport", "why"),
    [
        ("postgresql://me:secret@db/kingdom", "a password does not belong in a file: put the URL into an environment"),
        ("queue", "not a URL: sqlite:///file.db"),
        ("files:///var/queue", "queues on files are always in queue/ of the home: remove this key"),
        ("memory:", "each process would have its own queues"),
        ("postgresql://[::1/x", "not a URL (Invalid IPv6 URL)"),
    ],
)
def test_a_queue_url_with_a_password_or_without_sense_is_refused(home: Home, transport: str, why: str) -> None:
    (problem,) = problems_of(home, f"queue:\n  transport: '{transport}'\n")
    assert problem.startswith(f"2: queue.transport: {why}")
    assert "secret" not in problem


def test_the_queue_url_comes_from_the_variable_that_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_system(written(home, "queue: {transport_env: MY_QUEUE}\n"))
    monkeypatch.delenv("MY_QUEUE", raising=False)
    with pytest.raises(InvalidConfig, match="names MY_QUEUE, but that environment variable is not set"):
        config.queue_url(home)
    monkeypatch.setenv("MY_QUEUE", "postgresql://me:secret@db/kingdom")
    assert config.queue_url(home) == "postgresql://me:secret@db/kingdom"


def test_a_variable_that_is_not_set_is_named_with_the_file_that_names_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_QUEUE", raising=False)
    config = load_system(written(home, "queue: {transport_env: MY_QUEUE}\n"))
    with pytest.raises(UnsetVariable, match=r"config/system\.yaml: queue\.transport_env names MY_QUEUE"):
        config.queue_url(home)
    (home.config / "machine.yaml").write_text("{name: seat, database_env: MY_DATABASE}\n")
    config = load_system(home)
    with pytest.raises(UnsetVariable, match=r"config/machine\.yaml: database_env names MY_DATABASE"):
        config.queue_url(home)


def test_a_queue_has_one_url_only(home: Home) -> None:
    problems = problems_of(home, "name: x\nqueue: {transport: 'sqlite:///x', transport_env: X}\n")
    assert problems == ["2: queue: give transport or transport_env, not both"]


@pytest.mark.parametrize("name", ["UTC", "Asia/Seoul", "America/Argentina/Ushuaia"])
def test_known_time_zones(name: str) -> None:
    assert check_timezone(name) == name


@pytest.mark.parametrize("name", ["", "..", "/etc/passwd", "Europe", "../../etc/passwd", "Mars/X", "a\0b", "Europe/"])
def test_what_is_no_time_zone(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        check_timezone(name)


def test_the_zone_of_the_machine_is_one_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Asia/Seoul")
    assert local_timezone() == "Asia/Seoul"
    monkeypatch.setenv("TZ", "../Nowhere/X")
    assert check_timezone(local_timezone())
