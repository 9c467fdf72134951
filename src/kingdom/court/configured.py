"""What ``kingdom doctor`` says of the files below ``config/``: mistakes, and what they name that is not there."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from kingdom.bus import Check
from kingdom.court.chamberlain import config as chamberlain
from kingdom.court.envoy.config import FILE as ENVOY
from kingdom.court.envoy.config import load_envoy, slack_tokens
from kingdom.court.errors import InvalidConfig
from kingdom.court.king.routing import among
from kingdom.court.packages.loading import load_generals
from kingdom.court.sentinel.config import FILE as SENTINEL
from kingdom.court.sentinel.config import SentinelConfig, load_sentinel
from kingdom.court.trust.config import FILE as TRUST
from kingdom.court.trust.config import Tier, load_trust
from kingdom.court.trust.permit import Permit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kingdom.court.home import Home
    from kingdom.court.packages.loading import General

_MEND: Final = "mend that line"


def check_files(home: Home, environment: Mapping[str, str] | None = None) -> list[Check]:
    """Look at every file but system.yaml, without which nothing else can be looked at."""
    env = os.environ if environment is None else environment
    readers: dict[str, Callable[[], Iterator[Check]]] = {
        SENTINEL: lambda: _sentinel(home, env),
        ENVOY: lambda: _envoy(home, env),
        TRUST: lambda: _trust(home),
        chamberlain.FILE: lambda: _chamberlain(home),
    }
    found: list[Check] = []
    for name, read in readers.items():
        try:
            found += read()
        except InvalidConfig as error:
            found += [Check(name, "error", problem, _MEND) for problem in str(error).split("\n")]
    return found


def _sentinel(home: Home, env: Mapping[str, str]) -> Iterator[Check]:
    config = load_sentinel(home)
    watched = [name for name in ("github", "jira", "local") if (one := getattr(config, name)) and one.enabled]
    yield Check(SENTINEL, "ok", f"watches {', '.join(watched)}" if watched else "watches nothing")
    for what, variable in _secrets(config):
        if not env.get(variable, "").strip():
            told = f"{what} needs the environment variable {variable}, which is not set here"
            yield Check(SENTINEL, "warning", told, "the court needs it when it is started: kingdom connect checks it")


def _secrets(config: SentinelConfig) -> Iterator[tuple[str, str]]:
    for name, section in (("github", config.github), ("jira", config.jira)):
        if section is not None and section.enabled:
            yield name, section.token_env
    for name, hook in (("github", config.webhooks.github), ("jira", config.webhooks.jira)):
        if hook is not None:
            yield f"webhooks.{name}", hook.secret_env
    for name, generic in config.webhooks.generic.items():
        yield f"webhooks.generic.{name}", generic.token_env


def _envoy(home: Home, env: Mapping[str, str]) -> Iterator[Check]:
    slack = load_envoy(home).slack
    try:
        tokens = slack_tokens(slack, env)
    except InvalidConfig as error:
        yield Check(ENVOY, "warning", str(error), "the court needs them when it is started: kingdom connect slack")
        return
    yield Check(ENVOY, "ok", "people are told things on the console" if tokens is None else "people are in Slack")
    if tokens is not None and not slack.users and not _rules_for_slack(home):
        yield Check(ENVOY, "warning", "nobody in Slack is heard", f"name them in slack.users, or in config/{TRUST}")


def _rules_for_slack(home: Home) -> bool:
    with contextlib.suppress(InvalidConfig):  # told of the file itself
        return any(rule.source == "slack" for rule in load_trust(home).rules)
    return True


def _chamberlain(home: Home) -> Iterator[Check]:
    problem = chamberlain.ConfigFile(home).load().problem
    if problem is not None:
        raise InvalidConfig(problem)
    yield Check(chamberlain.FILE, "ok", "can be used")


def _trust(home: Home) -> Iterator[Check]:
    config, generals = load_trust(home), load_generals(home).by_name
    if not config.decides:
        yield Check(TRUST, "ok", "everybody whose events are heard may use all generals")
        return
    yield Check(TRUST, "ok", f"{len(config.rules)} rules; everybody else: {config.everybody_else}")
    used = {config.everybody_else, *(rule.tier for rule in config.rules)}
    for name, tier in config.tiers.items():
        if name not in used:
            yield Check(TRUST, "warning", f"nobody is in the tier {name}", "name it in a rule, or take it out")
        for pattern in tier.generals or []:
            if not any(among(general, [pattern]) for general in generals):
                yield Check(TRUST, "warning", f"tier {name}: no general is called {pattern}", "kingdom general ls")
        if not any(_may_use(tier, one, config.sandboxed) for one in generals.values()):
            hint = "codex has a sandbox; name engines that you confine in sandboxed" if tier.sandbox else "see generals"
            yield Check(TRUST, "warning", f"tier {name} can use none of the installed generals", hint)


def _may_use(tier: Tier, general: General, sandboxed: Iterable[str]) -> bool:
    permit = Permit("", "", tier.profile, tier.sandbox, tier.mcp, tuple(sandboxed))
    allowed = tier.generals is None or among(general.manifest.name, tier.generals)
    return allowed and permit.hindrance(general.manifest) is None
