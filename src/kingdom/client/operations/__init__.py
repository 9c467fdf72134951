"""Every operation of the API. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from kingdom.client.operations.bus import BusOperations
from kingdom.client.operations.court import CourtOperations
from kingdom.client.operations.health import HealthOperations
from kingdom.client.operations.live import LiveOperations
from kingdom.client.operations.mcp_servers import McpServersOperations
from kingdom.client.operations.repositories import RepositoriesOperations
from kingdom.client.operations.templates import TemplatesOperations
from kingdom.client.operations.workflows import WorkflowsOperations


class Operations(
    BusOperations,
    CourtOperations,
    HealthOperations,
    LiveOperations,
    McpServersOperations,
    RepositoriesOperations,
    TemplatesOperations,
    WorkflowsOperations,
):
    """A method for each of them."""
