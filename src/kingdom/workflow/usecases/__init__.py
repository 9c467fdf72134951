"""What can be done with workflows: functions that take a :class:`kingdom.workflow.context.WorkflowContext`.

Those exported here are for callers outside of this package; each opens its own transactions. ``steps`` and
``resources`` have the parts they share with the handlers, which work inside the caller's unit of work.
"""

from kingdom.workflow.usecases.catalog import (
    create_git,
    create_template_from_workflow,
    create_workflow_template,
    delete_git,
    delete_workflow_template,
    register_mcp_server,
    unregister_mcp_server,
    update_workflow_template,
)
from kingdom.workflow.usecases.follow_up import follow_up_workflow
from kingdom.workflow.usecases.lifecycle import (
    answer_workflow,
    cancel_workflow,
    delete_workflow,
    pause_workflow,
    record_person,
    resume_workflow,
    start_workflow,
)
from kingdom.workflow.usecases.workflows import create_workflow, fork_workflow, modify_workflow

__all__ = [
    "answer_workflow", "cancel_workflow", "create_git", "create_template_from_workflow", "create_workflow",
    "create_workflow_template", "delete_git", "delete_workflow", "delete_workflow_template", "follow_up_workflow",
    "fork_workflow", "modify_workflow", "pause_workflow", "record_person", "register_mcp_server", "resume_workflow",
    "start_workflow", "unregister_mcp_server", "update_workflow_template",
]  # fmt: skip
