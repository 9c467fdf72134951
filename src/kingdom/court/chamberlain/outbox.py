"""From drafts to messages in the queue, each exactly once.

A message gets its id, is written into the memory file, and only then goes into the queue, which takes an id once. After
a kill anywhere between, the next start finds it in the memory and puts it into the queue again, to no effect if it is
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kingdom.court.models import Message, timestamp
from kingdom.court.queues import put, read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.court.chamberlain.alerts import Draft
    from kingdom.court.loop import Services
    from kingdom.court.sequences import Sequences


class Outbox:
    """Messages on their way; ``waiting`` belongs to the memory."""

    def __init__(self, services: Services, sequences: Sequences, waiting: list[dict[str, Any]]) -> None:
        self._services = services
        self._sequences = sequences
        self._waiting = waiting

    def add(self, drafts: Sequence[Draft], channel: str) -> None:
        """Give drafts their ids. They go out with the next :meth:`send`."""
        if not drafts:
            return
        created_at = timestamp(self._services.clock())
        for message_id, draft in zip(self._sequences.messages(len(drafts)), drafts, strict=True):
            self._waiting.append(
                {
                    "id": message_id,
                    "type": draft.type,
                    "channel": channel,
                    "urgency": draft.urgency,
                    "content": draft.content,
                    "context": draft.context,
                    "created_at": created_at,
                    "status": "pending",
                }
            )

    async def send(self, save: Callable[[], None]) -> None:
        """Put everything that waits into the queue. ``save`` writes the memory, durably."""
        if not self._waiting:
            return
        save()
        await put(
            self._services.bus, [read(Message, document, "a message of the chamberlain") for document in self._waiting]
        )
        self._waiting.clear()
        save()
