"""The operations of repositories. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.connection import Connection
from kingdom.client.connection import path_segment as _part
from kingdom.client.models.repositories import Git, GitBody
from kingdom.client.models.shared import Deleted, Page


class RepositoriesOperations(Connection):
    """The operations of repositories."""

    def list_gits(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Git]:
        """List repositories."""
        answer: Page[Git] = self.request("GET", "/api/gits", query={"limit": limit, "cursor": cursor})
        return answer

    def create_git(self, body: GitBody) -> Git:
        """Register a repository."""
        answer: Git = self.request("POST", "/api/gits", body=body)
        return answer

    def get_git(self, git_id: str) -> Git:
        """Get a repository."""
        answer: Git = self.request("GET", f"/api/gits/{_part(git_id)}")
        return answer

    def delete_git(self, git_id: str) -> Deleted:
        """Delete a repository."""
        answer: Deleted = self.request("DELETE", f"/api/gits/{_part(git_id)}")
        return answer
