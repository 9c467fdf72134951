"""Commands to the engine from other processes: asked for on the bus of the store, carried out by whoever runs it.

Only the engine stops agents and resets trees, so whoever wants a workflow paused puts a command on the stream
``workflow.commands``. A command that was carried out is DONE; one that was refused is DEAD, with the refusal's code and
words. Commands of one workflow are not held in a row: a cancel must not wait for the clone a start is making.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus import BusError, Envelope, Reject, Worker
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from kingdom.bus import EventBus

COMMAND_STREAM: Final = "workflow.commands"
CommandHandler = Callable[..., Awaitable[object]]
"""Carries a command out: called with the workflow's id and the command's arguments by name."""

_FIRST_POLL_SECONDS: Final = (
    0.02  # seconds between the first two looks at what became of a command; later ones are further apart
)
_MAX_POLL_SECONDS: Final = 0.5
_REFUSED_KEPT_SECONDS: Final = 86400.0  # seconds for which a refused command is kept


class CommandRefused(WorkflowError):
    """The engine did not do what was asked; its reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CommandPending(WorkflowError):
    """The engine has not come to it yet; it still will."""

    code = "WFL_NO_ANSWER"


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A command that is on its way."""

    id: str
    type: str
    workflow_id: str


async def send_command(bus: EventBus, kind: str, workflow_id: str, **arguments: Any) -> SentCommand:
    """Ask the engine for something. The store's tables must be there (``store.setup``)."""
    await bus.declare(COMMAND_STREAM)
    envelope = Envelope(
        type=kind,
        payload={"workflowId": workflow_id, "arguments": arguments},
        aggregate_type="Workflow",
        aggregate_id=workflow_id,
    )
    await bus.publish(COMMAND_STREAM, envelope)
    return SentCommand(envelope.event_id, kind, workflow_id)


async def wait_for_command(bus: EventBus, asked: SentCommand, seconds: float) -> None:
    """Wait until a command was carried out. Raises :class:`CommandRefused`, or :class:`NoAnswer` after that long."""
    pause = _FIRST_POLL_SECONDS
    try:
        async with asyncio.timeout(seconds):
            while True:
                record = await bus.find(asked.id)
                if record is None or record.status == "DONE":  # finished commands are purged some day
                    return
                if record.status == "DEAD":
                    raise CommandRefused(record.error_code or "WFL", record.error_message or "no reason was given")
                await asyncio.sleep(pause)
                pause = min(_MAX_POLL_SECONDS, 1.5 * pause)
    except TimeoutError:
        raise CommandPending(
            f"the engine has not come to {asked.type} of {asked.workflow_id} in {seconds:g} s; it stays asked for "
            f"({asked.id}), and kingdom workflow show {asked.workflow_id} tells what became of it"
        ) from None


def command_worker(bus: EventBus, carriers: Mapping[str, CommandHandler], *, name: str = "engine") -> Worker:
    """A worker that carries commands out; ``carriers`` by the command's type. Call :func:`prepare` before it runs."""
    worker = Worker(bus, COMMAND_STREAM, name=name, signals=False)
    for kind, carry in carriers.items():
        worker.on(kind)(_handler(carry))
    return worker


async def prepare_commands(bus: EventBus) -> None:
    """Make the stream ready for a worker, and forget old refusals."""
    await bus.declare(COMMAND_STREAM)
    await bus.purge(_REFUSED_KEPT_SECONDS, stream=COMMAND_STREAM, dead=True)


def _handler(carry: CommandHandler) -> Callable[[Envelope], Awaitable[None]]:
    async def handle(envelope: Envelope) -> None:
        payload = envelope.payload
        try:
            await carry(payload["workflowId"], **payload["arguments"])
        except (BusError, asyncio.CancelledError):
            raise  # the store is away, or we stop: it is done again
        except WorkflowError as error:
            raise Reject(error.code, str(error)) from error
        except Exception as error:  # somebody waits for the answer: what is wrong now will be wrong in a minute
            raise Reject(type(error).__name__, f"{error}") from error

    return handle
