"""The operations of the API: templates. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Literal

from kingdom.client.connection import Connection, given, path_segment
from kingdom.client.models import Page
from kingdom.client.models.requests import (
    Deleted,
    GitRefBody,
    LandFields,
    McpServerRefBody,
    Template,
    TemplateBody,
    WorkBody,
    YamlText,
)
from kingdom.client.models.templates import ConvertedTemplate, GitInfo, McpServerInfo, TemplateSummary


class TemplateOperations(Connection):
    """The operations of the API: templates."""

    def list_gits(self, *, limit: int | None = None, cursor: str | None = None) -> Page[GitInfo]:
        """List repositories."""
        answer: Page[GitInfo] = self.request("GET", "/api/gits", query={"limit": limit, "cursor": cursor})
        return answer

    def create_git(self, *, name: str, url: str, check: bool | None = None) -> GitInfo:
        """Register a repository."""
        answer: GitInfo = self.request("POST", "/api/gits", body=given({"name": name, "url": url, "check": check}))
        return answer

    def get_git(self, git_id: str) -> GitInfo:
        """Get a repository."""
        answer: GitInfo = self.request("GET", f"/api/gits/{path_segment(git_id)}")
        return answer

    def delete_git(self, git_id: str) -> Deleted:
        """Delete a repository."""
        answer: Deleted = self.request("DELETE", f"/api/gits/{path_segment(git_id)}")
        return answer

    def list_mcp_servers(self, *, limit: int | None = None, cursor: str | None = None) -> Page[McpServerInfo]:
        """List MCP servers."""
        answer: Page[McpServerInfo] = self.request("GET", "/api/mcp-servers", query={"limit": limit, "cursor": cursor})
        return answer

    def register_mcp_server(
        self, *, name: str, command: list[str] | None = None, url: str | None = None, env: dict[str, str] | None = None
    ) -> McpServerInfo:
        """Register an MCP server."""
        answer: McpServerInfo = self.request(
            "POST", "/api/mcp-servers", body=given({"name": name, "command": command, "url": url, "env": env})
        )
        return answer

    def get_mcp_server(self, mcp_server_id: str) -> McpServerInfo:
        """Get an MCP server."""
        answer: McpServerInfo = self.request("GET", f"/api/mcp-servers/{path_segment(mcp_server_id)}")
        return answer

    def unregister_mcp_server(self, mcp_server_id: str) -> Deleted:
        """Unregister an MCP server."""
        answer: Deleted = self.request("DELETE", f"/api/mcp-servers/{path_segment(mcp_server_id)}")
        return answer

    def list_templates(
        self, *, search: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[TemplateSummary]:
        """List templates."""
        answer: Page[TemplateSummary] = self.request(
            "GET", "/api/workflow-templates", query={"search": search, "limit": limit, "cursor": cursor}
        )
        return answer

    def create_template(
        self,
        *,
        name: str,
        description: str | None = None,
        git_refs: list[GitRefBody] | None = None,
        mcp_server_refs: list[McpServerRefBody] | None = None,
        on_failure: Literal["pause", "fail"] | None = None,
        land: LandFields | None = None,
        works: list[WorkBody],
    ) -> Template:
        """Create a template."""
        answer: Template = self.request(
            "POST",
            "/api/workflow-templates",
            body=given(
                {
                    "name": name,
                    "description": description,
                    "gitRefs": git_refs,
                    "mcpServerRefs": mcp_server_refs,
                    "onFailure": on_failure,
                    "land": land,
                    "works": works,
                }
            ),
        )
        return answer

    def create_template_from_yaml(self, *, yaml: str) -> Template:
        """Create a template from YAML."""
        answer: Template = self.request("POST", "/api/workflow-templates/yaml", body=given({"yaml": yaml}))
        return answer

    def convert_template(self, *, yaml: str | None = None, fields: TemplateBody | None = None) -> ConvertedTemplate:
        """Convert a template between fields and YAML."""
        answer: ConvertedTemplate = self.request(
            "POST", "/api/workflow-templates/convert", body=given({"yaml": yaml, "fields": fields})
        )
        return answer

    def get_template(self, template_id: str) -> Template:
        """Get a template."""
        answer: Template = self.request("GET", f"/api/workflow-templates/{path_segment(template_id)}")
        return answer

    def update_template(
        self,
        template_id: str,
        *,
        name: str,
        description: str | None = None,
        git_refs: list[GitRefBody] | None = None,
        mcp_server_refs: list[McpServerRefBody] | None = None,
        on_failure: Literal["pause", "fail"] | None = None,
        land: LandFields | None = None,
        works: list[WorkBody],
    ) -> Template:
        """Update a template."""
        answer: Template = self.request(
            "PUT",
            f"/api/workflow-templates/{path_segment(template_id)}",
            body=given(
                {
                    "name": name,
                    "description": description,
                    "gitRefs": git_refs,
                    "mcpServerRefs": mcp_server_refs,
                    "onFailure": on_failure,
                    "land": land,
                    "works": works,
                }
            ),
        )
        return answer

    def delete_template(self, template_id: str) -> Deleted:
        """Delete a template."""
        answer: Deleted = self.request("DELETE", f"/api/workflow-templates/{path_segment(template_id)}")
        return answer

    def get_template_yaml(self, template_id: str) -> YamlText:
        """Get a template as YAML."""
        answer: YamlText = self.request("GET", f"/api/workflow-templates/{path_segment(template_id)}/yaml")
        return answer

    def update_template_from_yaml(self, template_id: str, *, yaml: str) -> Template:
        """Update a template from YAML."""
        answer: Template = self.request(
            "PUT", f"/api/workflow-templates/{path_segment(template_id)}/yaml", body=given({"yaml": yaml})
        )
        return answer
