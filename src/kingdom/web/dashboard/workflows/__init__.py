"""Pages of workflows and templates. Importing this package registers them."""

from __future__ import annotations

# The order matters: /workflows/{workflow_id} (workflow_page) also matches /workflows/new, so new_workflow comes first.
import kingdom.web.dashboard.workflows.catalog
import kingdom.web.dashboard.workflows.diff_pages
import kingdom.web.dashboard.workflows.new_workflow
import kingdom.web.dashboard.workflows.plan_editor
import kingdom.web.dashboard.workflows.report_page
import kingdom.web.dashboard.workflows.workflow_list
import kingdom.web.dashboard.workflows.workflow_page  # noqa: F401
