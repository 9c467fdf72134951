"""The web server that runs for a place, if one does: it is asked instead of the store, and answers when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.client import Client
    from kingdom.workflow.home import WorkflowHome

_PATIENCE: Final = 120.0  # seconds: agents may have to be stopped first


def asked_of_server(place: WorkflowHome, kind: str, workflow_id: str, **arguments: Any) -> bool:
    """Have the server carry a command out; False when there is none, or none that answers.

    Raises :class:`~kingdom.cli.output.Failure` when it refuses.
    """
    from kingdom.cli.output import Failure
    from kingdom.client import Refused, ServerAway

    client = _client(place)
    if client is None:
        return False
    with client:
        try:
            _CALLS[kind](client, workflow_id, arguments)
        except ServerAway:
            return False
        except Refused as refusal:
            raise Failure(refusal.code, str(refusal)) from refusal
    return True


def _client(place: WorkflowHome) -> Client | None:
    from kingdom.web.record import running_server

    root = place.root.parent
    if running_server(root) is None or place.store != type(place)(place.root).store:
        return None  # a store of the caller's own choice need not be the server's
    from kingdom.client import Client, NoServer, find_server

    try:
        return Client(*find_server(root), timeout=_PATIENCE)
    except NoServer:  # it has just stopped
        return None


def _resume(client: Client, workflow_id: str, arguments: dict[str, Any]) -> None:
    checkpoint = arguments.get("checkpoint_id")
    client.resume_workflow(workflow_id, {"retry": bool(arguments.get("retry")), "checkpointId": checkpoint})


_CALLS: Final[dict[str, Callable[[Client, str, dict[str, Any]], object]]] = {
    "StartWorkflow": lambda client, workflow_id, _: client.start_workflow(workflow_id),
    "ResumeWorkflow": _resume,
    "PauseWorkflow": lambda client, workflow_id, _: client.pause_workflow(workflow_id),
    "CancelWorkflow": lambda client, workflow_id, _: client.cancel_workflow(workflow_id),
    "DeleteWorkflow": lambda client, workflow_id, _: client.delete_workflow(workflow_id),
}
