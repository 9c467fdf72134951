"""Pull requests on GitHub and GitHub Enterprise: find, open and update them.

A request for a branch is found before one is opened, so that a repeated call opens no second one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin, urlsplit

from kingdom.gitops.errors import LandingRefused, RemoteUnavailable
from kingdom.gitops.names import hide_password

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from kingdom.gitops.credentials import Credentials
    from kingdom.gitops.names import RepositoryUrl

_TIMEOUT_SECONDS: Final = 30.0
_MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
_MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = (301, 302, 307, 308)
_PUBLIC_HOSTS: Final = ("github.com", "www.github.com", "ssh.github.com")
_PAGE_SIZE: Final = 100  # of reviews and comments
_MAX_PAGES: Final = 20
_RIGHTS_ADVICE: Final = "give the token the right to write contents and pull requests of this repository"


@dataclass(frozen=True)
class PullRequest:
    """A pull request."""

    number: int
    url: str
    state: str
    """``open``, ``closed`` or ``merged``."""
    body: str


@dataclass(frozen=True)
class PullRequestTarget:
    """Where pull requests of a repository are made."""

    host: str
    """The host whose token is needed."""
    api: str
    repository: str
    """``owner/name``."""

    @classmethod
    def of(cls, url: RepositoryUrl) -> PullRequestTarget:
        """Return the target of a repository's URL; raise :class:`LandingRefused` if it can have none."""
        if "://" in url.text:
            host, path = urlsplit(url.text).netloc.rpartition("@")[2].lower(), urlsplit(url.text).path
        else:  # user@host:path
            host, _, path = url.text.partition("@")[2].partition(":")
        host = host if url.protocol == "https" else host.partition(":")[0]  # the port of ssh is not that of the API
        parts = path.strip("/").removesuffix(".git").split("/")
        if url.protocol == "file" or len(parts) != 2 or not all(parts):
            raise LandingRefused(
                f"{hide_password(url.text)} is no repository on GitHub or GitHub Enterprise: it has no pull requests",
                "land with --push, --into DIR or --patch FILE",
            )
        if host in _PUBLIC_HOSTS:
            return cls("github.com", "https://api.github.com", "/".join(parts))
        return cls(host, f"https://{host}/api/v3", "/".join(parts))


@dataclass(frozen=True)
class WantedRequest:
    """A request to merge ``branch`` into ``base``."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool = False


@dataclass(frozen=True)
class LineNote:
    """A comment on a line of a pull request, numbered as its head has it."""

    path: str
    line: int
    body: str


@dataclass(frozen=True)
class WantedComment:
    """A comment on a pull request. ``mark`` is part of the body and finds it again."""

    body: str
    mark: str


@dataclass(frozen=True)
class Posted:
    """What was posted: its address, and when, by the clock of the server; None if it does not say."""

    url: str
    at: str | None


@dataclass(frozen=True)
class WantedReview:
    """A review of a pull request at one of its commits. ``mark`` is part of the body and finds it again."""

    number: int
    commit: str
    body: str
    mark: str
    notes: tuple[LineNote, ...] = ()


class PullRequests:
    """The pull requests of one repository."""

    def __init__(self, target: PullRequestTarget, token: str | None) -> None:
        self._target = target
        self._token = token

    @classmethod
    async def open(cls, target: PullRequestTarget, credentials: Credentials) -> PullRequests:
        """Return the pull requests of a target, with the token of its host."""
        return cls(target, await credentials.token(target.host))

    async def find_open(self, branch: str) -> PullRequest | None:
        """Return the open request of a branch of this repository, or None."""
        owner = self._target.repository.partition("/")[0]
        found = await self._call("GET", f"/pulls?state=open&per_page=10&head={quote(f'{owner}:{branch}')}")
        mine = [one for one in found if one.get("head", {}).get("ref") == branch]  # some servers ignore ``head``
        return _pull_request(mine[0]) if mine else None

    async def find(self, number: int) -> PullRequest:
        """Return a request by its number."""
        return _pull_request(await self._call("GET", f"/pulls/{number}"))

    async def ensure(self, wanted: WantedRequest, written: str | None = None) -> tuple[PullRequest, bool]:
        """Open the request of a branch, or update the text of the one there is; return it, and whether it is new.

        ``written`` is the text as we last wrote it: one that a person changed is left alone.
        """
        found = await self.find_open(wanted.branch)
        if found is None:
            document = {
                "head": wanted.branch,
                "base": wanted.base,
                "title": wanted.title,
                "body": wanted.body,
                "draft": wanted.draft,
            }
            return _pull_request(await self._call("POST", "/pulls", document)), True
        if not same_text(found.body, wanted.body) and written is not None and same_text(found.body, written):
            found = _pull_request(await self._call("PATCH", f"/pulls/{found.number}", {"body": wanted.body}))
        return found, False

    async def review(self, wanted: WantedReview) -> str:
        """Post a review that neither approves nor demands changes, once; return its address."""
        path = f"/pulls/{wanted.number}/reviews"
        if (posted := await self._find_posted(path, wanted.mark)) is not None:
            return posted.url
        notes = [{"path": one.path, "line": one.line, "side": "RIGHT", "body": one.body} for one in wanted.notes]
        document = {"commit_id": wanted.commit, "body": wanted.body, "event": "COMMENT", "comments": notes}
        return str((await self._call("POST", path, document))["html_url"])

    async def comment(self, number: int, wanted: WantedComment) -> Posted:
        """Post a comment on an issue or pull request, once."""
        path = f"/issues/{number}/comments"
        posted = await self._find_posted(path, wanted.mark)
        return posted or _posted(await self._call("POST", path, {"body": wanted.body}))

    async def react(self, path: str, content: str) -> None:
        """React to an issue, a pull request or a comment, once: ``react("/issues/7", "eyes")``."""
        await self._call("POST", f"{path}/reactions", {"content": content})

    async def _find_posted(self, path: str, mark: str) -> Posted | None:
        """Return what was posted with a mark, if it was."""
        for page in range(1, _MAX_PAGES + 1):
            found = await self._call("GET", f"{path}?per_page={_PAGE_SIZE}&page={page}")
            for one in found:
                if mark in str(one.get("body")):
                    return _posted(one)
            if len(found) < _PAGE_SIZE:
                break
        return None

    async def get(self, path: str) -> Any:
        """Read something of the repository: ``get("/pulls/7")``."""
        return await self._call("GET", path)

    async def _call(self, method: str, path: str, document: dict[str, Any] | None = None) -> Any:
        url = f"{self._target.api}/repos/{self._target.repository}{path}"
        for _ in range(_MAX_REDIRECTS + 1):
            status, headers, content = await asyncio.to_thread(_request, method, url, self._token, document)
            if status not in _REDIRECTS:
                return self._checked(status, headers, content)
            target = urljoin(url, headers.get("location", ""))
            if urlsplit(target)[:2] != urlsplit(url)[:2]:  # the token is for this server only
                raise LandingRefused(f"{url} leads to another server, {target}", "correct the URL of the repository")
            url = target
        raise RemoteUnavailable(f"{url} leads to itself")

    def _checked(self, status: int, headers: Mapping[str, str], content: bytes) -> Any:
        try:
            answer = json.loads(content) if content else {}
        except ValueError:
            answer = {}
        if 200 <= status < 300 and isinstance(answer, (dict, list)):
            return answer
        message = _message_of(answer) or f"status {status}"
        where = f"{self._target.repository} at {urlsplit(self._target.api).netloc}"
        if status == 401:
            raise LandingRefused(f"the token for {where} is not accepted: {message}", "check the token")
        if status == 403 and headers.get("x-ratelimit-remaining") != "0" and "retry-after" not in headers:
            raise LandingRefused(f"no pull request may be made in {where}: {message}", _RIGHTS_ADVICE)
        if status == 404:
            missing = "" if self._token else " (no token is configured for it)"
            raise LandingRefused(
                f"{where} is not there, or the token cannot see it{missing}: {message}", _RIGHTS_ADVICE
            )
        if status == 422:
            raise LandingRefused(f"{where} refused the pull request: {message}", "change what it names, and land again")
        raise RemoteUnavailable(f"{where} could not take the request now: {message}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the caller: the token must not follow them to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _request(
    method: str, url: str, token: str | None, document: dict[str, Any] | None
) -> tuple[int, Mapping[str, str], bytes]:
    """Return the status, the headers and the content of an answer."""
    headers = {
        "Accept": "application/vnd.github+json",
        "User-Agent": "kingdom",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    content = None
    if document is not None:
        headers["Content-Type"] = "application/json"
        content = json.dumps(document).encode()
    request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310 - the URL was checked
    try:
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=_trust()))
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.status, _lowered(answer.headers), answer.read(_MAX_RESPONSE_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _lowered(error.headers), error.read(_MAX_RESPONSE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise RemoteUnavailable(f"{urlsplit(url).netloc} could not be reached: {reason}") from None


def _trust() -> ssl.SSLContext:
    """Return whom to trust: the authorities of the system, and the one that git is set to trust."""
    context = ssl.create_default_context()
    if file := os.environ.get("GIT_SSL_CAINFO"):
        context.load_verify_locations(file)
    return context


def _lowered(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def same_text(one: str, other: str) -> bool:
    """Whether two texts are the same, whatever a server did to their line ends."""
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()


def _posted(document: dict[str, Any]) -> Posted:
    at = document.get("created_at")
    return Posted(str(document["html_url"]), at if isinstance(at, str) else None)


def _pull_request(document: dict[str, Any]) -> PullRequest:
    merged = document.get("merged") or document.get("merged_at")
    state = "merged" if merged else str(document["state"])
    return PullRequest(int(document["number"]), str(document["html_url"]), state, str(document.get("body") or ""))


def _message_of(answer: Any) -> str:
    """Return the message of an error, with its details."""
    if not isinstance(answer, dict):
        return ""
    details = [one.get("message") or one.get("code") for one in answer.get("errors") or () if isinstance(one, dict)]
    return ": ".join(str(part) for part in (answer.get("message"), *details) if part)
