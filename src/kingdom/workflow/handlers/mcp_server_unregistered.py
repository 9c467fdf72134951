"""McpServerUnregistered: no template names the MCP server any more."""

from __future__ import annotations

from kingdom.workflow.domain.events import McpServerUnregistered
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.handlers._cascade import all_templates
from kingdom.workflow.parts import Step


class McpServerUnregisteredHandler(Handler):
    """Takes the reference out of every template."""

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Remove the reference wherever it stands."""
        event = news.event
        assert isinstance(event, McpServerUnregistered)
        for template in await all_templates(step.tx):
            if template.remove_mcp_server(event.mcp_server_id):
                await step.tx.templates.save(template)
