"""The checks of ``kingdom connect`` for GitHub and Jira: does the token work, and what can it see?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kingdom.court.errors import InvalidConfig
from kingdom.court.sentinel.config import read_secret
from kingdom.court.sentinel.watcher import (
    SourceBusy,
    SourceElsewhere,
    SourceError,
    SourceNotFound,
    SourceRefused,
    SourceUnauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.sentinel.config import GitHubSection, JiraSection
    from kingdom.court.sentinel.http import SourceClient

_GITHUB_TOKEN_URL: Final = "https://github.com/settings/tokens/new?scopes=notifications,repo&description=kingdom"  # noqa: S105
_JIRA_TOKEN_URL: Final = "https://id.atlassian.com/manage-profile/security/api-tokens"  # noqa: S105


class Finding(NamedTuple):
    """The result of one check."""

    level: Literal["ok", "warning", "error"]
    text: str
    fix: str = ""


async def check_github(section: GitHubSection, clock: Callable[[], float]) -> list[Finding]:
    """Try everything that the GitHub watcher does, without changing anything."""
    from kingdom.court.sentinel.github_api import connect_github

    try:
        token = read_secret(section.token_env, "github")
    except InvalidConfig as error:
        return [Finding("error", str(error), f"create a classic token at {_GITHUB_TOKEN_URL}")]
    client = connect_github(section, token, clock)
    try:
        findings = await _github_account(client, section, token)
        if not any(found.level == "error" for found in findings):
            if section.notifications:
                findings.append(await _github_notifications(client))
            findings += [await _github_repo(client, repo) for repo in section.repos]
            if not section.notifications and not section.repos:
                findings.append(Finding("error", "nothing is watched", "set notifications: true or list repos"))
    except SourceError as error:
        return [_failure(error, "github", section.url)]
    finally:
        await client.close()
    return findings


def _failure(error: SourceError, source: str, url: str) -> Finding:
    if isinstance(error, SourceBusy):
        return Finding("error", str(error), f"try again in {error.wait:.0f} s; a court waits by itself")
    if isinstance(error, SourceElsewhere):
        return Finding("error", str(error), f"correct {source}.url in sentinel.yaml")
    return Finding("error", str(error), f"check the address {url} and this machine's network")


async def _github_account(client: SourceClient, section: GitHubSection, token: str) -> list[Finding]:
    try:
        answer = await client.get("/user")
    except SourceElsewhere:
        raise
    except SourceUnauthorized:
        return [
            Finding(
                "error",
                f"{section.token_env} is not accepted: it is wrong or expired",
                f"create one at {_GITHUB_TOKEN_URL}",
            )
        ]
    except (SourceNotFound, SourceRefused) as error:
        if section.login:
            return [Finding("ok", f"the token belongs to an app, used for {section.login} (github.login)")]
        return [Finding("error", f"the token belongs to no account ({error})", "set github.login in sentinel.yaml")]
    login = str(answer.body.get("login")) if isinstance(answer.body, dict) else "?"
    findings = [Finding("ok", f"{section.token_env} belongs to {login}")]
    if "x-oauth-scopes" in answer.headers:
        scopes = [scope.strip() for scope in answer.headers["x-oauth-scopes"].split(",") if scope.strip()]
        findings.append(Finding("ok", f"it is a classic token with the scopes {', '.join(scopes) or '(none)'}"))
        if "repo" not in scopes:
            findings.append(
                Finding(
                    "warning",
                    "without the scope repo the token sees public repositories only",
                    f"add it at {_GITHUB_TOKEN_URL}",
                )
            )
    else:
        kind = "a fine-grained token" if token.startswith("github_pat_") else "not a classic token"
        findings.append(Finding("ok", f"it is {kind}: it needs read access to Issues, Pull requests and Contents"))
    return findings


async def _github_notifications(client: SourceClient) -> Finding:
    from kingdom.court.sentinel.github_api import fetch_account_name
    from kingdom.court.sentinel.github_unread import sign_on_problem, withheld_organizations

    try:
        answer = await client.get("/notifications", {"per_page": 50})
        if answer.next is not None:  # the sentinel follows the links to further pages
            await client.get(answer.next)
    except SourceElsewhere:
        raise
    except (SourceNotFound, SourceRefused):
        return Finding(
            "error",
            "the token may not read notifications: only classic tokens with the scope notifications may",
            f"create one at {_GITHUB_TOKEN_URL}, or set notifications: false and list repositories under repos",
        )
    if withheld := withheld_organizations(answer.headers):
        names = [await fetch_account_name(client, identity) or identity for identity in withheld]
        return Finding("error", sign_on_problem(", ".join(names)), "authorize the token for their single sign-on")
    unread = len(answer.body) if isinstance(answer.body, list) else 0
    interval = answer.headers.get("x-poll-interval", "60")
    more = " or more" if answer.next else ""
    return Finding("ok", f"{unread}{more} unread notifications; GitHub allows a request every {interval} s")


async def _github_repo(client: SourceClient, repo: str) -> Finding:
    from kingdom.court.sentinel.github_api import fetch_repository
    from kingdom.court.sentinel.github_unread import lapsed_sign_on, sign_on_problem

    try:
        found = await fetch_repository(client, repo)
        for what in ("issues", "pulls"):
            answer = await client.get(f"/repos/{repo}/{what}", {"per_page": 1, "state": "all"})
            if answer.next is not None:
                await client.get(answer.next)
    except SourceElsewhere:
        raise
    except (SourceNotFound, SourceRefused) as error:
        if (lapsed := lapsed_sign_on(error, repo)) is not None:
            return Finding("error", f"{repo}: {sign_on_problem(*lapsed)}", f"open {lapsed.url}")
        return Finding(
            "error",
            f"{repo}: its issues and pull requests cannot be read",
            "check the name, and give the token access (read Issues and Pull requests, or the scope repo)",
        )
    if found.name.lower() != repo.lower():
        return Finding("warning", f"{repo} is called {found.name} now", f"change github.repos to {found.name}")
    return Finding("ok", f"{repo} can be read")


async def check_jira(section: JiraSection, clock: Callable[[], float]) -> list[Finding]:
    """Try everything that the Jira watcher does."""
    from kingdom.court.sentinel.jira_watcher import SEARCH_PATH, connect_jira, fetch_account, jql_since

    try:
        client = connect_jira(section, clock)
    except InvalidConfig as error:
        return [Finding("error", str(error), f"create a token at {_JIRA_TOKEN_URL}")]
    try:
        account = await fetch_account(client)
        zone = account.get("timeZone", "unknown")
        findings = [Finding("ok", f"the account is {account.get('displayName')} (time zone {zone})")]
        jql = jql_since(section, clock() - 7 * 86400)
        body = (await client.post(SEARCH_PATH, {"jql": jql, "fields": ["updated"], "maxResults": 100})).body
        found = len(body.get("issues") or []) if isinstance(body, dict) else 0
        more = " or more" if isinstance(body, dict) and body.get("nextPageToken") else ""
        findings.append(Finding("ok", f"{found}{more} tickets changed in the last 7 days: {jql}"))
        if not found:
            findings.append(
                Finding(
                    "warning", "no ticket was found", "check projects and jql, and whether the account may browse them"
                )
            )
    except SourceUnauthorized:
        return [
            Finding(
                "error",
                f"{section.token_env} is not accepted for this email address",
                f"create one at {_JIRA_TOKEN_URL}",
            )
        ]
    except SourceElsewhere as error:
        return [_failure(error, "jira", section.url)]
    except SourceRefused as error:
        return [Finding("error", str(error), "check jira.projects and jira.jql")]
    except SourceError as error:
        return [_failure(error, "jira", section.url)]
    finally:
        await client.close()
    return findings
