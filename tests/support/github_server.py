"""A GitHub that keeps state: real repositories over https, and the pull requests of its REST API under ``/api/v3``.

It follows the documented rules: one open request for a branch, no request without commits, and 404 for what a token may
not see.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.git_server import GitHandler, GitServer, trusted
from tests.support.repositories import plain_git

_PULLS = re.compile(
    r"/api/v3/repos/(?P<name>[^/]+/[^/]+)/(?:pulls(?:/(?P<number>\d+)(?P<reviews>/reviews)?)?|issues/(?P<issue>\d+)/comments"
    r"|(?P<reacted>(?:issues|(?:issues|pulls)/comments)/\d+)/reactions)\Z"
)
_OTHERS = re.compile(r"/api/v3/repos/(?P<name>[^/]+/[^/]+)(?P<rest>/.*)\Z")
_REFUSALS = {
    401: "Requires authentication",
    403: "Resource not accessible by personal access token",
    404: "Not Found",
}
Answer = tuple[int, Any]
TOKEN = "t0ken-of-the-court"
"""What a court writes with."""


class GitHubServer(GitServer):
    """``with GitHubServer(folder) as server``; people do things by its methods."""

    def __init__(self, folder: Path, *, name: str = "127.0.0.1") -> None:
        super().__init__(folder, name=name)
        self.handler = _ApiHandler
        self.pulls: dict[str, list[dict[str, Any]]] = {}
        self.reviews: dict[tuple[str, int], list[dict[str, Any]]] = {}
        """The reviews of a pull request, by repository and number."""
        self.comments: dict[tuple[str, int], list[dict[str, Any]]] = {}
        """The comments on an issue or pull request, by repository and number."""
        self.now = "2026-02-07T12:00:00Z"
        """When comments are created."""
        self.reactions: dict[str, set[str]] = {}
        """The reactions to what has a path, such as ``/issues/7`` or ``/issues/comments/11``."""
        self.said: dict[str, list[dict[str, Any]] | dict[str, Any]] = {}
        """What other paths below a repository answer, such as ``/pulls/1/comments``."""
        self.calls: list[tuple[str, str]] = []
        """Method and path of every call of the API."""
        self.refuse: list[str] = []
        """Ends of paths for which the token has no right."""
        self.fail_next: list[int] = []
        """Statuses that the next calls of the API get instead of an answer."""

    def bare(self, name: str) -> Path:
        return self.folder / f"{name}.git"

    def merge(self, name: str, number: int) -> str:
        """Merge a pull request, as a person does with the button; return the new commit of the base."""
        pull = self.pulls[name][number - 1]
        bare, base = self.bare(name), pull["base"]["ref"]
        tree = plain_git(bare, "merge-tree", "--write-tree", base, pull["head"]["ref"]).splitlines()[0]
        parents = [word for ref in (base, pull["head"]["ref"]) for word in ("-p", ref)]
        commit = plain_git(bare, "commit-tree", tree, *parents, "-m", f"Merge pull request #{number}")
        plain_git(bare, "update-ref", f"refs/heads/{base}", commit)
        pull |= {"state": "closed", "merged": True, "merged_at": "2026-02-07T12:00:00Z"}
        return commit

    def answer(self, method: str, path: str, token: str | None, body: dict[str, Any]) -> Answer:
        """Return the answer to a call of the API."""
        parts = urlsplit(path)
        self.calls.append((method, path))
        if self.fail_next:
            return self.fail_next.pop(0), {"message": "not now"}
        other = _OTHERS.fullmatch(parts.path)
        if other is not None and self.decide(other["name"], token, write=False) == 200 and other["rest"] in self.said:
            return 200, self.said[other["rest"]]
        found = _PULLS.fullmatch(parts.path)
        if found is None:
            return 404, {"message": "Not Found"}
        name = found["name"]
        status = self.decide(name, token, write=method != "GET")
        status = 403 if parts.path.endswith(tuple(self.refuse)) else status
        if status in _REFUSALS:
            return status, {"message": "Bad credentials" if status == 401 and token else _REFUSALS[status]}
        number, pulls = found["number"], self.pulls.setdefault(name, [])
        if found["issue"]:
            return self._commented(name, int(found["issue"]), method, body, parse_qs(parts.query))
        if found["reacted"]:
            self.reactions.setdefault(f"/{found['reacted']}", set()).add(body["content"])
            return 201, {"content": body["content"]}
        if found["reviews"]:
            return self._reviewed(name, int(found["number"]), method, body, parse_qs(parts.query))
        if number is not None:
            if not 1 <= int(number) <= len(pulls):
                return 404, {"message": "Not Found"}
            pulls[int(number) - 1] |= {key: body[key] for key in ("title", "body", "state") if key in body}
            return 200, pulls[int(number) - 1]
        if method == "GET":
            return 200, self._listed(pulls, parse_qs(parts.query))
        return self._open(name, pulls, body)

    def _reviewed(
        self, name: str, number: int, method: str, body: dict[str, Any], query: dict[str, list[str]]
    ) -> Answer:
        reviews = self.reviews.setdefault((name, number), [])
        if method == "GET":
            return 200, _page(reviews, query)
        head = plain_git(self.bare(name), "rev-parse", f"refs/pull/{number}/head")
        if body["commit_id"] != head:
            return 422, {"message": "Unprocessable Entity", "errors": [{"message": "commit_id is not part of it"}]}
        reviews.append({**body, "html_url": f"{self.url}/{name}/pull/{number}#pullrequestreview-{len(reviews) + 1}"})
        return 200, reviews[-1]

    def _commented(
        self, name: str, number: int, method: str, body: dict[str, Any], query: dict[str, list[str]]
    ) -> Answer:
        comments = self.comments.setdefault((name, number), [])
        if method == "GET":
            return 200, _page(comments, query)
        where = f"{self.url}/{name}/issues/{number}#issuecomment-{len(comments) + 1}"
        comments.append({**body, "html_url": where, "created_at": self.now})
        return 201, comments[-1]

    def _listed(self, pulls: list[dict[str, Any]], query: dict[str, list[str]]) -> list[dict[str, Any]]:
        state, head = query.get("state", ["open"])[0], query.get("head", [""])[0]
        return [
            pull for pull in reversed(pulls) if state in ("all", pull["state"]) and head in ("", pull["head"]["label"])
        ]

    def _open(self, name: str, pulls: list[dict[str, Any]], body: dict[str, Any]) -> Answer:
        branches, owner = self.refs(name), name.partition("/")[0]
        head, base = body["head"], body["base"]
        problem = None
        if head not in branches:
            problem = {"resource": "PullRequest", "field": "head", "code": "invalid"}
        elif base not in branches:
            problem = {"resource": "PullRequest", "field": "base", "code": "invalid"}
        elif any(pull["state"] == "open" and pull["head"]["ref"] == head for pull in pulls):
            problem = {"message": f"A pull request already exists for {owner}:{head}."}
        elif not plain_git(self.bare(name), "log", "--oneline", f"{base}..{head}"):
            problem = {"message": f"No commits between {base} and {head}"}
        if problem is not None:
            return 422, {"message": "Validation Failed", "errors": [problem]}
        number = len(pulls) + 1
        plain_git(self.bare(name), "symbolic-ref", f"refs/pull/{number}/head", f"refs/heads/{head}")
        pulls.append(
            {
                "number": number,
                "html_url": f"{self.url}/{name}/pull/{number}",
                "state": "open",
                "merged": False,
                "merged_at": None,
                "title": body["title"],
                "body": body.get("body"),
                "draft": body.get("draft", False),
                "head": {"ref": head, "label": f"{owner}:{head}"},
                "base": {"ref": base},
            }
        )
        return 201, pulls[-1]


@contextlib.contextmanager
def github_of_a_court(
    folder: Path, patch: pytest.MonkeyPatch, repository: str, files: dict[str, str] | None = None
) -> Iterator[GitHubServer]:
    """A GitHub with a repository, to which ``TOKEN`` of the environment's ``HUB_TOKEN`` may write; git trusts it."""
    with GitHubServer(folder) as server, trusted(server):
        server.grant(TOKEN, "court")
        server.create(repository, files)
        patch.setenv("HUB_TOKEN", TOKEN)
        yield server


def hub_settings(server: GitHubServer) -> dict[str, Any]:
    """The settings of a court that works with it."""
    return {"repos": {"base_url": server.url}, "git": {"credentials": {server.host: {"env": "HUB_TOKEN"}}}}


def _page(items: list[dict[str, Any]], query: dict[str, list[str]]) -> list[dict[str, Any]]:
    size, page = int(query["per_page"][0]), int(query["page"][0])
    return items[size * (page - 1) : size * page]


class _ApiHandler(GitHandler):
    git: GitHubServer

    def do_PATCH(self) -> None:
        self.serve()

    def serve(self) -> None:
        if not self.path.startswith("/api/"):
            super().serve()
            return
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        content = self.read_body()
        body = json.loads(content) if content else {}
        status, document = self.git.answer(self.command, self.path, token if kind == "Bearer" else None, body)
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
