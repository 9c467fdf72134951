"""GitDeleted: no template names the repository any more."""

from __future__ import annotations

from kingdom.workflow.domain.events import GitDeleted
from kingdom.workflow.handlers._base import Handler, News
from kingdom.workflow.handlers._cascade import all_templates
from kingdom.workflow.parts import Step


class GitDeletedHandler(Handler):
    """Takes the reference out of every template."""

    async def handle(self, step: Step, news: News, made: object = None) -> None:
        """Remove the reference wherever it stands."""
        event = news.event
        assert isinstance(event, GitDeleted)
        for template in await all_templates(step.tx):
            if template.remove_git(event.git_id):
                await step.tx.templates.save(template)
