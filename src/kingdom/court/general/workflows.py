"""A task that is done by a workflow: what the engine ``workflow`` is told. The court knows no more of workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean_tree
from kingdom.court.models import EVENT_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.general.errand import Errand
    from kingdom.court.general.notes import Note
    from kingdom.court.general.quarters import Quarters

_ABOUT: Final = ("title", "body", "url", "author", "labels", "summary", "description")  # of a ticket or pull request


def commission(quarters: Quarters, errand: Errand, note: Note, url: str | None, answer: str | None) -> dict[str, Any]:
    """The options of an order for a workflow."""
    return {
        "home": str(quarters.home.workflows),
        "template": quarters.manifest.template,
        "template_file": str(quarters.package.workflow_path),
        "key": errand.line.work_id,  # a resume goes on with the workflow of the task it began as
        "repository": None if url is None else {"name": _name(errand, url), "url": url},
        "issue_key": errand.subject,
        "variables": _variables(errand),
        "engines": {name: section.model_dump(mode="json") for name, section in quarters.system.engines.items()},
        "retries": note.retries,
        "answer": None if answer is None else {"task_id": errand.task.id, "text": answer},
    }


def _variables(errand: Errand) -> Mapping[str, Any]:
    """What queries may use: ``event``, ``payload``, and what the payload says of the ``issue``."""
    event: Mapping[str, Any] = {**(errand.event or {}), "repo": errand.repo}
    payload = errand.task.payload
    variables: Mapping[str, Any] = clean_tree(
        {
            "event": {name: event.get(name) for name in EVENT_FIELDS},
            "payload": payload,
            "issue": {name: payload[name] for name in _ABOUT if name in payload},
        }
    )
    return variables


def _name(errand: Errand, url: str) -> str:
    return errand.repo if isinstance(errand.repo, str) else url.rstrip("/").rpartition("/")[2].removesuffix(".git")
