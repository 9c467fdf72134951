"""Pages about workflows and templates. Importing them puts them into the registry."""

from __future__ import annotations

import kingdom.web.dashboard.workflows.catalog
import kingdom.web.dashboard.workflows.new_workflow
import kingdom.web.dashboard.workflows.plan_editor

# In this order: /workflows/new (creating) is looked for before /workflows/{workflow_id} (page), which matches it too.
import kingdom.web.dashboard.workflows.result_pages
import kingdom.web.dashboard.workflows.workflow_list
import kingdom.web.dashboard.workflows.workflow_page
