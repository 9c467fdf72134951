"""A GitHub that behaves as its documentation and its users' complaints say: notifications, subjects, timelines."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from tests.support.fake_http import FakeServer, Request, Response

ME = "kingdom-bot"
REPO = "acme/shop"


class FakeGitHub(FakeServer):
    """People do things by its methods; the account ``ME`` is notified of what others do."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._tick = 0.0
        self._ids = 1000
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.timelines: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.line_comments: dict[int, list[dict[str, Any]]] = {}
        self.threads: dict[str, dict[str, Any]] = {}
        self.checks: dict[str, list[dict[str, Any]]] = {}
        self.poll_interval = 60
        self.always_unchanged = False
        """Every conditional request for notifications is answered with 304, whatever happened."""
        self.last_modified: str | None = None
        self.notifications_per_page: int | None = None
        self.commits: dict[str, tuple[str, str]] = {}
        self.scopes: str | None = "notifications, repo"
        self.tells_time = False
        """Answers have a Date, as those of the real one do."""
        self.marked: list[str] = []
        self.repo_ids: dict[str, int] = {REPO: 900_000}
        self.moved: dict[str, str] = {}
        """Former names of repositories, and what they are called now."""
        self.accounts: dict[str, int] = {}
        """The ids of organizations."""
        self.lapsed: set[str] = set()
        """Organizations for whose single sign-on the token is not authorized."""

    # ── what people do ────────────────────────────────────────────────────────────────────────────────────────

    def open(self, number: int, by: str = "grace", *, pr: bool = True, repo: str = REPO, body: str = "") -> None:
        """Open a pull request or an issue."""
        self.repo_id(repo)
        now = self._now()
        subject: dict[str, Any] = {
            "number": number,
            "title": f"Change {number}",
            "body": body,
            "user": {"login": by},
            "state": "open",
            "html_url": f"https://github.example/{repo}/{'pull' if pr else 'issues'}/{number}",
            "created_at": now,
            "updated_at": now,
            "labels": [],
            "assignees": [],
            "author_association": "MEMBER",
        }
        if pr:
            sha = f"{number:040x}"
            self.commits[sha] = (by, self._now())
            subject |= {"head": {"ref": "feature", "sha": sha}, "base": {"ref": "main"}, "draft": False}
            subject |= {"merged": False, "pull_request": {}}
        self.subjects[repo, number] = subject
        self.timelines[repo, number] = []
        self._notify(repo, number, by, "subscribed")

    def repo_id(self, repo: str = REPO) -> int:
        """The id of a repository, which it keeps when it is renamed."""
        if repo not in self.repo_ids:
            self.repo_ids[repo] = 900_000 + 7 * (len(self.repo_ids) + len(self.moved))
        return self.repo_ids[repo]

    def rename(self, repo: str, to: str) -> None:
        """Rename a repository. The old name redirects, until another repository has it."""
        self.repo_ids[to] = self.repo_id(repo)
        self.moved[repo] = to
        del self.repo_ids[repo]
        for table in (self.subjects, self.timelines):
            for key in [key for key in table if key[0] == repo]:
                table[to, key[1]] = table.pop(key)  # type: ignore[attr-defined]
        for thread in self.threads.values():
            if thread["repository"]["full_name"] == repo:
                thread["repository"]["full_name"] = to
                thread["subject"]["url"] = (thread["subject"]["url"] or "").replace(f"/repos/{repo}/", f"/repos/{to}/")

    def request_review(self, number: int, reviewer: str = ME, by: str = "grace", repo: str = REPO) -> int:
        """Ask for a review; returns the id of the entry."""
        who = {"requested_reviewer": {"login": reviewer}}
        return self.entry(number, "review_requested", by, repo=repo, reason="review_requested", **who)

    def withdraw_review(self, number: int, reviewer: str = ME, by: str = "grace") -> int:
        """Take the request for a review back; returns the id of the entry."""
        return self.entry(number, "review_request_removed", by, requested_reviewer={"login": reviewer})

    def comment(self, number: int, body: str = "Looks fine", by: str = "grace", repo: str = REPO) -> int:
        """Comment; returns the id of the comment."""
        reason = "mention" if f"@{ME}" in body else "subscribed"
        return self.entry(number, "commented", by, repo=repo, reason=reason, body=body, user={"login": by})

    def review(self, number: int, state: str, body: str = "", by: str = "grace", lines: tuple[str, ...] = ()) -> int:
        """Review, with comments at lines; returns the id of the review."""
        identity = self.entry(number, "reviewed", by, state=state, body=body, user={"login": by})
        self.line_comments[identity] = [
            {"id": self._next(), "user": {"login": by}, "body": text, "path": "a.py", "line": at, "created_at": "x"}
            for at, text in enumerate(lines, 1)
        ]
        return identity

    def assign(self, number: int, to: str = ME, by: str = "grace") -> int:
        """Assign it to somebody."""
        return self.entry(number, "assigned", by, reason="assign", assignee={"login": to})

    def unassign(self, number: int, of: str = ME, by: str = "grace") -> int:
        """Take it from somebody."""
        return self.entry(number, "unassigned", by, assignee={"login": of})

    def push(self, number: int, by: str = "grace", repo: str = REPO) -> str:
        """Push a commit to a pull request; returns its sha."""
        repo, sha = self._present(repo), f"{self._next():040x}"
        self.commits[sha] = (by, self._now())
        self.subjects[repo, number]["head"]["sha"] = sha
        self.timelines[repo, number].append({"event": "committed", "sha": sha})
        self._touch(repo, number, by, "subscribed")
        return sha

    def force_push(self, number: int, sha: str, by: str = "grace", repo: str = REPO) -> int:
        """Set the head to any commit; returns the id of the entry."""
        self.subjects[repo, number]["head"]["sha"] = sha
        return self.entry(number, "head_ref_force_pushed", by, repo=repo, commit_id=sha)

    def check(self, number: int, conclusion: str, name: str = "tests", repo: str = REPO) -> int:
        """A check of the head ends; returns its id. Nobody is notified, and the pull request is not updated."""
        run = {"id": self._next(), "name": name, "status": "completed", "conclusion": conclusion}
        run |= {"completed_at": self._now(), "html_url": "https://ci.example/1", "app": {"slug": "ci"}}
        run |= {"output": {"title": "2 failed", "summary": "test_ls failed"}}
        self.checks.setdefault(self.subjects[repo, number]["head"]["sha"], []).append(run)
        return int(run["id"])

    def merge(self, number: int, by: str = "grace") -> None:
        """Merge it: two entries, as GitHub writes them."""
        self.subjects[REPO, number] |= {"state": "closed", "merged": True}
        self.entry(number, "merged", by)
        self.entry(number, "closed", by)

    def close(self, number: int, by: str = "grace") -> int:
        """Close it."""
        self.subjects[REPO, number]["state"] = "closed"
        return self.entry(number, "closed", by)

    def entry(
        self, number: int, event: str, by: str, *, repo: str = REPO, reason: str = "subscribed", **more: Any
    ) -> int:
        """Add any entry to a timeline; returns its id."""
        repo, identity, now = self._present(repo), self._next(), self._now()
        at = {"submitted_at": now} if event == "reviewed" else {"created_at": now}
        self.timelines[repo, number].append({"event": event, "id": identity, "actor": {"login": by}, **at, **more})
        self._touch(repo, number, by, reason)
        return identity

    def notify_of(self, kind: str, title: str, url: str | None = None, repo: str = REPO) -> str:
        """A notification about something without a number."""
        return self._thread(repo, {"type": kind, "title": title, "url": url}, "subscribed")

    def touch(self, number: int, repo: str = REPO) -> None:
        """A notification without any act that shows in the timeline."""
        self._touch(repo, number, "github-actions[bot]", "ci_activity")

    # ── what the account is told ──────────────────────────────────────────────────────────────────────────────

    def _touch(self, repo: str, number: int, by: str, reason: str) -> None:
        self.subjects[repo, number]["updated_at"] = self._now()
        self._notify(repo, number, by, reason)

    def _notify(self, repo: str, number: int, by: str, reason: str) -> None:
        pr = "head" in self.subjects[repo, number]
        url = f"{self.url}/repos/{repo}/{'pulls' if pr else 'issues'}/{number}"
        subject = {"type": "PullRequest" if pr else "Issue", "title": f"Change {number}", "url": url}
        if by != ME:
            self._thread(repo, subject, reason)

    def _thread(self, repo: str, subject: dict[str, Any], reason: str) -> str:
        for thread in self.threads.values():
            if thread["subject"]["url"] == subject["url"] and subject["url"] is not None:
                sticky = thread["reason"] if thread["reason"] in ("mention", "review_requested") else reason
                thread |= {"updated_at": self._now(), "unread": True, "reason": sticky}
                return str(thread["id"])
        identity = str(self._next())
        self.threads[identity] = {
            "id": identity,
            "unread": True,
            "reason": reason,
            "updated_at": self._now(),
            "subject": subject,
            "repository": {"id": self.repo_id(repo), "full_name": repo},
        }
        return identity

    # ── what it answers ───────────────────────────────────────────────────────────────────────────────────────

    def answer(self, request: Request) -> Response:
        path = request.path
        if path == "/user":
            headers = {} if self.scopes is None else {"X-OAuth-Scopes": self.scopes}
            return Response({"login": ME}, headers=headers)
        if path == "/search/issues":
            return self._search(request.query["q"])
        if path == "/notifications":
            return self._notifications(request)
        if found := re.fullmatch(r"/user/(\d+)", path):
            names = [name for name, identity in self.accounts.items() if identity == int(found[1])]
            return Response({"login": names[0], "type": "Organization"}) if names else _not_found()
        if found := re.fullmatch(r"/notifications/threads/(\d+)", path):
            self.threads[found[1]]["unread"] = False
            self.marked.append(found[1])
            return Response(status=205)
        if found := re.fullmatch(r"/repositories/(\d+)(?:/(.+))?", path):
            names = [name for name, identity in self.repo_ids.items() if identity == int(found[1])]
            return self._repo(request, names[0], found[2] or "") if names else _not_found()
        if found := re.fullmatch(r"/repos/([^/]+/[^/]+)(?:/(.+))?", path):
            if found[1] in self.moved and found[1] not in self.repo_ids:
                return self._redirect(request, self.moved[found[1]], found[2])
            if (owner := found[1].partition("/")[0]) in self.lapsed:
                return self._sign_on_required(owner)
            return self._repo(request, found[1], found[2] or "")
        return _not_found()

    def _present(self, repo: str) -> str:
        """What a repository is called now."""
        while repo in self.moved and repo not in self.repo_ids:
            repo = self.moved[repo]
        return repo

    def _redirect(self, request: Request, repo: str, rest: str | None) -> Response:
        repo = self._present(repo)
        query = "&".join(f"{name}={value}" for name, value in request.query.items())
        where = (
            f"{self.url}/repositories/{self.repo_ids[repo]}{f'/{rest}' if rest else ''}{f'?{query}' if query else ''}"
        )
        return Response({"message": "Moved Permanently", "url": where}, 301, {"Location": where})

    def _sign_on_required(self, owner: str) -> Response:
        message = (
            "Resource protected by organization SAML enforcement. You must grant your Personal Access token access to "
            "this organization."
        )
        url = f"https://github.example/orgs/{owner}/sso?authorization_request=AZSCKL"
        return Response({"message": message}, 403, {"X-GitHub-SSO": f"required; url={url}"})

    def account_id(self, name: str) -> int:
        """The id of an organization."""
        return self.accounts.setdefault(name, 500_000 + len(self.accounts))

    def _notifications(self, request: Request) -> Response:
        everything = sorted(self.threads.values(), key=lambda thread: thread["updated_at"], reverse=True)
        newest = everything[0]["updated_at"] if everything else "2026-01-01T00:00:00Z"
        modified = self.last_modified or format_datetime(datetime.fromisoformat(newest), usegmt=True)
        headers = {"Last-Modified": modified, "X-Poll-Interval": str(self.poll_interval)}
        if self.tells_time:
            headers["Date"] = format_datetime(datetime.fromtimestamp(int(self._clock()), UTC), usegmt=True)
        before = request.headers.get("if-modified-since")
        if before is not None and (self.always_unchanged or before == modified):
            return Response(status=304, headers=headers)
        if self.lapsed:
            ids = ",".join(str(self.account_id(name)) for name in sorted(self.lapsed))
            headers["X-GitHub-SSO"] = f"partial-results; organizations={ids}"
        wanted = [
            thread
            for thread in everything
            if thread["repository"]["full_name"].partition("/")[0] not in self.lapsed
            and (thread["unread"] or request.query.get("all") == "true")
            and thread["updated_at"] >= request.query.get("since", "")
        ]
        return self._page(request, wanted, headers, self.notifications_per_page)

    def _repo(self, request: Request, repo: str, rest: str) -> Response:
        if repo not in self.repo_ids:
            return _not_found()
        if not rest:
            return Response({"id": self.repo_id(repo), "full_name": repo})
        if rest in ("issues", "pulls"):
            found = [
                subject
                for (of, _), subject in self.subjects.items()
                if of == repo and subject["updated_at"] >= request.query.get("since", "")
            ]
            found.sort(key=lambda subject: str(subject["updated_at"]))
            etag = f'"{hash(str(found))}"'
            if request.headers.get("if-none-match") == etag:
                return Response(status=304, headers={"ETag": etag})
            return self._page(request, found, {"ETag": etag})
        if match := re.fullmatch(r"commits/(\w+)/check-runs", rest):
            return Response({"check_runs": self.checks.get(match[1], [])})
        if match := re.fullmatch(r"commits/(\w+)", rest):
            by, at = self.commits[match[1]]
            written = {"committer": {"date": at}}
            return Response({"sha": match[1], "committer": {"login": by}, "author": {"login": by}, "commit": written})
        match = re.fullmatch(r"(issues|pulls)/(\d+)(/.*)?", rest)
        if match is None or (repo, int(match[2])) not in self.subjects:
            return _not_found()
        key, below = (repo, int(match[2])), match[3]
        if below is None:
            return Response(self._shown(key))
        if below == "/timeline":
            return self._page(request, self.timelines[key])
        if review := re.fullmatch(r"/reviews/(\d+)/comments", below):
            return self._page(request, self.line_comments.get(int(review[1]), []))
        return _not_found()

    def _search(self, query: str) -> Response:
        author = query.removeprefix("is:pr is:open author:")
        found = [
            {"number": number, "repository_url": f"{self.url}/repos/{repo}"}
            for (repo, number), subject in self.subjects.items()
            if "head" in subject and subject["state"] == "open" and subject["user"]["login"] == author
        ]
        return Response({"total_count": len(found), "items": found})

    def _shown(self, key: tuple[str, int]) -> dict[str, Any]:
        """A subject as it is shown: a pull request names its repository, an issue only the address of it."""
        subject, (repo, _) = self.subjects[key], key
        if "head" not in subject:
            return {**subject, "repository_url": f"{self.url}/repos/{repo}"}
        return {**subject, "base": {**subject["base"], "repo": {"id": self.repo_id(repo), "full_name": repo}}}

    def _page(
        self, request: Request, items: list[Any], headers: dict[str, str] | None = None, size: int | None = None
    ) -> Response:
        size = size or int(request.query.get("per_page", 30))
        page = int(request.query.get("page", 1))
        last = max(-(-len(items) // size), 1)
        query = "&".join(f"{name}={value}" for name, value in request.query.items() if name != "page")
        links = []
        if page < last:
            where = f"{self.url}{request.path}?{query}&page="
            links = [f'<{where}{page + 1}>; rel="next"', f'<{where}{last}>; rel="last"']
        return Response(
            items[(page - 1) * size : page * size],
            headers={**(headers or {}), **({"Link": ", ".join(links)} if links else {})},
        )

    def _next(self) -> int:
        self._ids += 1
        return self._ids

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _not_found() -> Response:
    return Response({"message": "Not Found"}, 404)
