"""The operations of templates. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.connection import Connection
from kingdom.client.connection import path_segment as _part
from kingdom.client.models.shared import Deleted, Page, Template, YamlText
from kingdom.client.models.templates import ConvertBody, Converted, TemplateBody, TemplateSummary, YamlBody


class TemplatesOperations(Connection):
    """The operations of templates."""

    def list_templates(
        self, *, search: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[TemplateSummary]:
        """List templates."""
        answer: Page[TemplateSummary] = self.request(
            "GET", "/api/workflow-templates", query={"search": search, "limit": limit, "cursor": cursor}
        )
        return answer

    def create_template(self, body: TemplateBody) -> Template:
        """Create a template."""
        answer: Template = self.request("POST", "/api/workflow-templates", body=body)
        return answer

    def create_template_from_yaml(self, body: YamlBody) -> Template:
        """Create a template from YAML."""
        answer: Template = self.request("POST", "/api/workflow-templates/yaml", body=body)
        return answer

    def convert_template(self, body: ConvertBody) -> Converted:
        """Turn fields into YAML, or YAML into fields."""
        answer: Converted = self.request("POST", "/api/workflow-templates/convert", body=body)
        return answer

    def get_template(self, template_id: str) -> Template:
        """Get a template."""
        answer: Template = self.request("GET", f"/api/workflow-templates/{_part(template_id)}")
        return answer

    def update_template(self, template_id: str, body: TemplateBody) -> Template:
        """Update a template."""
        answer: Template = self.request("PUT", f"/api/workflow-templates/{_part(template_id)}", body=body)
        return answer

    def delete_template(self, template_id: str) -> Deleted:
        """Delete a template."""
        answer: Deleted = self.request("DELETE", f"/api/workflow-templates/{_part(template_id)}")
        return answer

    def get_template_yaml(self, template_id: str) -> YamlText:
        """Get a template as YAML."""
        answer: YamlText = self.request("GET", f"/api/workflow-templates/{_part(template_id)}/yaml")
        return answer

    def update_template_from_yaml(self, template_id: str, body: YamlBody) -> Template:
        """Update a template from YAML."""
        answer: Template = self.request("PUT", f"/api/workflow-templates/{_part(template_id)}/yaml", body=body)
        return answer
