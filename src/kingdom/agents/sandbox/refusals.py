"""What the gateway refuses, in the journal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kingdom.agents.untrusted import clean_line

if TYPE_CHECKING:
    from kingdom.agents.port import Order
    from kingdom.agents.sandbox.gateway import OnRefusal
    from kingdom.journal import Journal


def refusals_to(journal: Journal, actor: str) -> OnRefusal:
    """Return a listener that writes refusals to a journal, with the id of the task. A full disk does not stop it."""

    from kingdom.journal import JournalError
    from kingdom.journal.catalog import SoldierRefused

    def on_refusal(order: Order, reason: str) -> None:
        with contextlib.suppress(JournalError):
            journal.emit(SoldierRefused(order.task_id, order.run_id, clean_line(reason)), actor)

    return on_refusal
