"""Pages about workflows and templates. Importing them puts them into the registry."""

from __future__ import annotations

# In this order: /workflows/new (creating) is looked for before /workflows/{workflow_id} (page), which matches it too.
import kingdom.web.dashboard.workflows.checkpoint_page
import kingdom.web.dashboard.workflows.creating
import kingdom.web.dashboard.workflows.listing
import kingdom.web.dashboard.workflows.page
import kingdom.web.dashboard.workflows.plan_page
import kingdom.web.dashboard.workflows.report_page
import kingdom.web.dashboard.workflows.sources_page
import kingdom.web.dashboard.workflows.template_pages  # noqa: F401
