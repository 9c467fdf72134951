"""Which token belongs to which host."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.gitops import Credentials, GitSettings, InvalidInput, RemoteAccess
from kingdom.gitops.credentials import CredentialRule, check_host, credential_environment, host_of
from kingdom.gitops.errors import CommandFailed
from kingdom.gitops.names import check_url
from kingdom.gitops.remotes import reason_of

NO_PROGRAMS = {"PATH": "/nowhere"}


@pytest.mark.parametrize(
    ("environ", "token", "source"),
    [
        ({"GITHUB_TOKEN": " one\n", "GH_TOKEN": "two"}, "one", "the variable GITHUB_TOKEN"),
        ({"GITHUB_TOKEN": "", "GH_TOKEN": "two"}, "two", "the variable GH_TOKEN"),
    ],
)
async def test_github_gets_the_usual_variable_without_any_setting(
    environ: dict[str, str], token: str, source: str
) -> None:
    found = await Credentials(environ=environ | NO_PROGRAMS).find("GitHub.com:443")
    assert found.credential is not None
    assert (found.credential.username, found.credential.password, found.source) == ("x-access-token", token, source)


async def test_without_a_variable_github_gets_what_gh_has(tmp_path: Path) -> None:
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\ntest "$*" = "auth token --hostname github.com" && echo from-gh\n')
    gh.chmod(0o755)
    assert await Credentials(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}).token("github.com") == "from-gh"


async def test_without_anything_it_says_what_to_do() -> None:
    found = await Credentials(environ=NO_PROGRAMS).find("github.com")
    assert found.credential is None
    assert found.advice == "set GITHUB_TOKEN, or log in with gh auth login"


@pytest.mark.parametrize("host", ["evil.example", "github.com.evil.example", "api.github.com", "github.com:8443"])
async def test_no_other_host_gets_the_token_of_github(host: str) -> None:
    found = await Credentials(environ={"GITHUB_TOKEN": "t", "GH_TOKEN": "t", "GH_ENTERPRISE_TOKEN": "t"}).find(host)
    assert found.credential is None
    assert f"git.credentials, such as {host}: {{env: MY_TOKEN}}" in found.advice


async def test_a_rule_decides_for_its_host() -> None:
    rules = {
        "git.example.com": CredentialRule("env", "WORK_TOKEN", "oauth2"),
        "bitbucket.org": CredentialRule("env", "BUCKET_TOKEN"),
        "github.com": CredentialRule("none"),
    }
    environ = {"WORK_TOKEN": "w", "BUCKET_TOKEN": "b", "GITHUB_TOKEN": "g"}
    credentials = Credentials(rules, environ=environ)
    work, bucket = await credentials.find("git.example.com", username="jane"), await credentials.find("bitbucket.org")
    assert work.credential is not None
    assert work.credential.username == "oauth2"
    assert bucket.credential is not None
    assert bucket.credential.username == "x-access-token"
    named = await credentials.find("bitbucket.org", username="jane")
    assert named.credential is not None
    assert named.credential.username == "jane"
    assert await credentials.token("github.com") is None


async def test_a_variable_that_is_not_set_is_named() -> None:
    found = await Credentials({"git.example.com": CredentialRule("env", "WORK_TOKEN")}, environ={}).find(
        "git.example.com"
    )
    assert (found.credential, found.advice) == (None, "set the variable WORK_TOKEN")


def test_one_token_cannot_be_given_to_every_host() -> None:
    with pytest.raises(InvalidInput, match="a token belongs to one host"):
        Credentials({"*": CredentialRule("env", "TOKEN")})
    Credentials({"*": CredentialRule("helper")})


async def test_a_credential_does_not_show_its_password() -> None:
    found = await Credentials(environ={"GITHUB_TOKEN": "secret-one"}).find("github.com")
    assert "secret-one" not in repr(found)


@pytest.mark.parametrize("host", ["", "https://github.com", "a b", "github.com/owner", "a@b", "a\nb", "-x"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match=r"a name such as github\.com"):
        check_host(host)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://github.com/acme/app", "github.com"),
        ("https://ada@Git.Example.com:8443/acme/app", "git.example.com:8443"),
        ("https://[::1]:443/acme/app", "[::1]"),
        ("git@github.com:acme/app", None),
        ("ssh://git@github.com/acme/app", None),
        ("/srv/app", None),
    ],
)
def test_only_https_has_a_host_with_a_token(url: str, host: str | None) -> None:
    assert host_of(url) == host


def test_without_a_credential_git_gets_no_helper_at_all() -> None:
    assert credential_environment("github.com", None) == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "credential.helper",
        "GIT_CONFIG_VALUE_0": "",
    }


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("remote: Repository not found.\nfatal: repository 'https://github.com/a/b/' not found", "missing"),
        ("fatal: could not read Username for 'https://github.com': terminal prompts disabled", "no-credential"),
        ("remote: Invalid username or password.\nfatal: Authentication failed for 'https://github.com/a/b/'", "denied"),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 403", "denied"),
        ("git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.", "denied"),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", "untrusted"),
        ("fatal: unable to access 'https://x/': server certificate verification failed. CAfile: none", "untrusted"),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", "unreachable"),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 503", "unreachable"),
        ("ssh: Could not resolve hostname nowhere: Name or service not known", "unreachable"),
        ("error: RPC failed; HTTP 301 curl 22 The requested URL returned error: 301", "moved"),
        ("fatal: something else", "unknown"),
    ],
)
def test_what_git_says_has_a_reason(said: str, reason: str) -> None:
    assert reason_of(said) == reason


def test_the_settings_are_read_from_the_section_git() -> None:
    read = GitSettings.read({"author": "Ada Lovelace <ada@example.com>", "co_authors": ["B <b@example.com>"]})
    assert str(read.identity) == "Ada Lovelace <ada@example.com>"
    assert [str(other) for other in read.identity.co_authors] == ["B <b@example.com>"]
    assert str(GitSettings.read({}).identity) == "Kingdom <kingdom@localhost>"
    for wrong in ("Ada", "<ada@example.com>", "Ada <ada>", "Ada <a@b> <c@d>", "Ada\n<a@b>", "A\nB <a@b>"):
        with pytest.raises(InvalidInput, match="write it as"):
            GitSettings.read({"author": wrong})


async def test_ssh_gets_its_agent_and_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    access = RemoteAccess(Credentials(environ={"GITHUB_TOKEN": "secret-one"}))
    remote = check_url("git@github.com:acme/app.git")
    found = await access.find(remote)
    given = access.variables(remote, found)
    assert found.credential is None
    assert (given["GIT_ALLOW_PROTOCOL"], given["SSH_AUTH_SOCK"]) == ("ssh", "/run/agent")
    assert given["GIT_SSH_COMMAND"] == "ssh -o BatchMode=yes"
    assert "secret-one" not in given.values()


def test_the_line_ends_of_ssh_and_of_progress_are_not_shown() -> None:
    said = "Got: 50%\rGot: 100%\nssh: connect to host example.com port 22: Connection refused\r\nfatal: no\r\n"
    error = CommandFailed(("git", "fetch"), 128, said)
    assert "\r" not in str(error)
    assert error.said.splitlines()[-2:] == ["ssh: connect to host example.com port 22: Connection refused", "fatal: no"]
