"""A Jira Cloud that behaves as its documentation and its users' complaints say: zones, index lag, page tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.support.fake_http import FakeServer, Request, Response

ME = "acc-me"
_SHOWN_CHANGES, _SHOWN_COMMENTS = 40, 20


class FakeJira(FakeServer):
    """People change tickets by its methods. All times it writes are in the zone of the account that asks."""

    def __init__(self, clock: Callable[[], float], zone: str = "UTC") -> None:
        super().__init__()
        self._clock = clock
        self.zone = ZoneInfo(zone)
        self.lag = 0.0
        """Seconds until the search knows of a change."""
        self.page_size = 50
        self.repeat_token = False
        self.empty_page = False
        self.issues: dict[str, dict[str, Any]] = {}
        self._ids = 10_000
        self.questions: list[str] = []
        self.hidden: set[str] = set()
        """Projects that were deleted, or that the account may not browse."""

    # ── what people do ────────────────────────────────────────────────────────────────────────────────────────

    def create(self, key: str, by: str = "acc-ann", assignee: str | None = None) -> None:
        """Make a ticket."""
        assert key not in self.issues, f"there is a ticket {key} already"
        self.issues[key] = {
            "id": str(self._next()),
            "by": by,
            "assignee": assignee,
            "born": self._clock(),
            "touched": [self._clock()],
            "histories": [],
            "comments": [],
        }

    def change(self, key: str, field: str = "status", to: str | None = "Done", by: str = "acc-ann") -> str:
        """Change a field; returns the id of the entry."""
        identity = str(self._next())
        issue = self.issues[key]
        before = issue.get("assignee") if field == "assignee" else None
        items = [{"field": field, "from": before, "to": to, "fromString": "x", "toString": to}]
        issue["histories"].append({"id": identity, "at": self._clock(), "author": by, "items": items})
        issue["touched"].append(self._clock())
        if field == "assignee":
            issue["assignee"] = to
        return identity

    def comment(self, key: str, text: str = "Hello", by: str = "acc-ann", mention: str | None = None) -> str:
        """Comment; returns the id."""
        identity, content = str(self._next()), [{"type": "text", "text": text}]
        if mention is not None:
            content.append({"type": "mention", "attrs": {"id": mention, "text": "@me"}})  # type: ignore[dict-item]
        body = {"type": "doc", "version": 1, "content": [{"type": "paragraph", "content": content}]}
        self.issues[key]["comments"].append({"id": identity, "at": self._clock(), "author": by, "body": body})
        self.issues[key]["touched"].append(self._clock())
        return identity

    def id_of(self, key: str) -> str:
        """The id of a ticket, which it keeps when it is moved."""
        return str(self.issues[key]["id"])

    def move(self, key: str, to: str, by: str = "acc-ann") -> str:
        """Move a ticket to another project: its id stays, its key changes; returns the id of the entry."""
        assert to not in self.issues, f"there is a ticket {to} already"
        self.issues[to] = self.issues.pop(key)
        return self.change(to, "Key", to, by)

    # ── what it answers ───────────────────────────────────────────────────────────────────────────────────────

    def answer(self, request: Request) -> Response:
        if request.path == "/rest/api/3/myself":
            return Response({"accountId": ME, "displayName": "Kingdom", "timeZone": str(self.zone)})
        if request.path == "/rest/api/3/search/jql" and request.method == "POST":
            return self._search(request.body)
        if found := re.fullmatch(r"/rest/api/3/project/(\w+)", request.path):
            if found[1] in self.hidden:
                return Response({"errorMessages": [f"No project could be found with key '{found[1]}'."]}, 404)
            return Response({"key": found[1]})
        if found := re.fullmatch(r"/rest/api/3/issue/([\w-]+)/(changelog|comment)", request.path):
            return self._rest(found[1], found[2], request)
        return Response({"errorMessages": ["nothing here"]}, 404)

    def _search(self, question: dict[str, Any]) -> Response:
        jql = question["jql"]
        self.questions.append(jql)
        since = re.search(r"updated >= (\d+)(?= ORDER BY updated ASC\Z)", jql)
        if since is None:
            return Response({"errorMessages": [f"cannot read {jql}"]}, 400)
        projects = re.findall(r'"(\w+)"', (re.search(r"project in \(([^)]*)\)", jql) or [""])[0])
        if missing := self.hidden & set(projects):
            name = min(missing)
            return Response({"errorMessages": [f"The value '{name}' does not exist for the field 'project'."]}, 400)
        wanted = []
        for key, issue in self.issues.items():
            project = key.rpartition("-")[0]
            if project in self.hidden or (projects and project not in projects):
                continue
            indexed = [at for at in issue["touched"] if at + self.lag <= self._clock()]
            if indexed and int(max(indexed) * 1000) >= int(since[1]):
                wanted.append((max(indexed), key))
        wanted.sort()
        start = int(question.get("nextPageToken", "token-0").removeprefix("token-"))
        if self.empty_page and start == 0 and "nextPageToken" not in question:
            return Response({"issues": [], "nextPageToken": "token-0"})
        page = wanted[start : start + self.page_size]
        body: dict[str, Any] = {"issues": [self._row(key, at) for at, key in page]}
        if start + self.page_size < len(wanted):
            body["nextPageToken"] = f"token-{start if self.repeat_token and start else start + self.page_size}"
        return Response(body)

    def _row(self, key: str, updated: float) -> dict[str, Any]:
        issue = self.issues[key]
        known = self._clock() - self.lag
        histories = [entry for entry in reversed(issue["histories"]) if entry["at"] <= known]
        comments = [entry for entry in issue["comments"] if entry["at"] <= known]
        fields = {
            "summary": f"Ticket {key}",
            "description": {"type": "doc", "content": []},
            "status": {"name": "Open"},
            "assignee": {"accountId": issue["assignee"]} if issue["assignee"] else None,
            "creator": {"accountId": issue["by"], "displayName": "Ann"},
            "created": self._time(issue["born"]),
            "updated": self._time(updated),
            "comment": {
                "comments": [self._entry(entry) for entry in comments[:_SHOWN_COMMENTS]],
                "total": len(comments),
            },
        }
        changelog = {
            "histories": [self._entry(entry) for entry in histories[:_SHOWN_CHANGES]],
            "total": len(histories),
        }
        return {"id": issue["id"], "key": key, "fields": fields, "changelog": changelog}

    def _rest(self, identity: str, what: str, request: Request) -> Response:
        found = [issue for key, issue in self.issues.items() if identity in (key, issue["id"])]
        if not found:
            return Response({"errorMessages": ["Issue does not exist or you do not have permission to see it."]}, 404)
        (issue,) = found
        if request.method == "POST":
            self.comment(identity, by=ME)
            issue["comments"][-1]["body"] = request.body["body"]
            return Response(self._entry(issue["comments"][-1]), 201)
        start, size = int(request.query["startAt"]), int(request.query["maxResults"])
        known = self._clock() - self.lag
        entries = [entry for entry in issue["histories" if what == "changelog" else "comments"] if entry["at"] <= known]
        if request.query.get("orderBy") == "-created":
            entries.reverse()
        page = [self._entry(entry) for entry in entries[start : start + size]]
        key = "values" if what == "changelog" else "comments"
        return Response({key: page, "total": len(entries), "startAt": start})

    def _entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        author = {"accountId": entry["author"], "displayName": entry["author"]}
        return {**entry, "author": author, "created": self._time(entry["at"])}

    def _time(self, at: float) -> str:
        local = datetime.fromtimestamp(at, self.zone)
        return local.strftime("%Y-%m-%dT%H:%M:%S.") + f"{local.microsecond // 1000:03d}" + local.strftime("%z")

    def _next(self) -> int:
        self._ids += 1
        return self._ids
