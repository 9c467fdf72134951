"""Commands to the engine from other processes, sent over the bus of the store.

Only the engine stops agents and resets trees, so another process that wants a workflow paused publishes a command on
the stream ``workflow.commands``. A command that was carried out is DONE; one that was refused is DEAD, with the error's
code and message. The stream is not ordered per workflow: a cancel must not wait for the clone that a start is making.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus import BusError, Envelope, Reject, Retry, Worker
from kingdom.workflow.errors import HeldElsewhere, StoreError, WorkflowError
from kingdom.workflow.store.holds import EngineReplaced

if TYPE_CHECKING:
    from kingdom.bus import EventBus

COMMAND_STREAM: Final = "workflow.commands"
LAND_AGAIN: Final = "LandWorkflow"
CommandHandler = Callable[..., Awaitable[object]]
"""Carries out a command: called with the workflow's id and the command's arguments as keywords."""

_FIRST_POLL_SECONDS: Final = 0.02  # between the first two polls of a command's status; the pause then grows
_MAX_POLL_SECONDS: Final = 0.5
_CARRY_SECONDS: Final = 600.0  # for a command that this process carries out itself
_ELSEWHERE_SECONDS: Final = 0.2  # before a command is left to the engine that holds its workflow
_REFUSED_KEPT_SECONDS: Final = 86400.0  # before a refused command is purged


class CommandRefused(WorkflowError):
    """The engine refused a command; the message is its reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CommandPending(WorkflowError):
    """The engine has not carried out a command yet; it still will."""

    code = "WFL_NO_ANSWER"


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A command that was sent."""

    id: str
    type: str
    workflow_id: str


async def send_command(bus: EventBus, kind: str, workflow_id: str, **arguments: Any) -> SentCommand:
    """Send a command to the engine. The store's tables must exist (``store.setup``)."""
    await bus.declare(COMMAND_STREAM)
    envelope = _command(kind, workflow_id, arguments)
    await bus.publish(COMMAND_STREAM, envelope)
    return SentCommand(envelope.event_id, kind, workflow_id)


def default_answer(workflow_id: str, task_id: str, attempt: int, text: str, deadline: datetime) -> Envelope:
    """Return the command that answers the question of this attempt at its deadline, if it is still open then."""
    arguments = {"text": text, "task_id": task_id, "attempt": attempt}
    return _command("AnswerWorkflow", workflow_id, arguments, not_before=deadline)


def land_again(workflow_id: str, tries: int, at: datetime) -> Envelope:
    """Return the command that lands a workflow again at some time, after this many tries, if it still waits then."""
    return _command(LAND_AGAIN, workflow_id, {"tries": tries}, not_before=at)


async def wait_for_command(bus: EventBus, command: SentCommand, seconds: float) -> None:
    """Wait until a command is carried out; raise :class:`CommandRefused`, or :class:`CommandPending` on timeout."""
    pause = _FIRST_POLL_SECONDS
    try:
        async with asyncio.timeout(seconds):
            while True:
                record = await bus.find(command.id)
                if record is None or record.status == "DONE":  # None: it was carried out and purged since
                    return
                if record.status == "DEAD":
                    raise CommandRefused(record.error_code or "WFL", record.error_message or "no reason was given")
                await asyncio.sleep(pause)
                pause = min(_MAX_POLL_SECONDS, 1.5 * pause)
    except TimeoutError:
        raise CommandPending(
            f"the engine has not carried out {command.type} of {command.workflow_id} in {seconds:g} s. The command "
            f"({command.id}) is still queued: kingdom workflow show {command.workflow_id} shows the result"
        ) from None


async def carry_out_left(bus: EventBus, command: SentCommand, handlers: Mapping[str, CommandHandler]) -> None:
    """Carry out a command that was sent to an engine that has gone; needs the engine lease.

    Waits until the claim of the former engine has ended. Raises :class:`CommandRefused`.
    """
    while not (claimed := await bus.claim(COMMAND_STREAM, worker="command", ids=[command.id], lease=_CARRY_SECONDS)):
        record = await bus.find(command.id)
        if record is None or record.status in ("DONE", "DEAD"):
            return await wait_for_command(bus, command, _CARRY_SECONDS)
        await asyncio.sleep(_MAX_POLL_SECONDS)
    (delivery,) = claimed
    try:
        await _bus_handler(handlers[command.type])(delivery.envelope)
    except Reject as error:
        await bus.settle(dead=[(delivery, error.code, error.why)])
        raise CommandRefused(error.code, error.why) from error
    except Retry:  # the engine that holds its workflow carries it out
        await bus.release([delivery])
        return await wait_for_command(bus, command, _CARRY_SECONDS)
    await bus.settle(done=[delivery])
    return None


def command_worker(bus: EventBus, handlers: Mapping[str, CommandHandler], *, name: str = "engine") -> Worker:
    """Return a worker that carries out commands; ``handlers`` are by type. Call :func:`prepare_commands` first."""
    worker = Worker(bus, COMMAND_STREAM, name=name, signals=False)
    for kind, handler in handlers.items():
        worker.on(kind)(_bus_handler(handler))
    return worker


async def prepare_commands(bus: EventBus) -> None:
    """Declare the stream and purge old refused commands."""
    await bus.declare(COMMAND_STREAM)
    await bus.purge(_REFUSED_KEPT_SECONDS, stream=COMMAND_STREAM, dead=True)


def _command(kind: str, workflow_id: str, arguments: Mapping[str, Any], not_before: datetime | None = None) -> Envelope:
    return Envelope(
        type=kind,
        payload={"workflowId": workflow_id, "arguments": dict(arguments)},
        aggregate_type="Workflow",
        aggregate_id=workflow_id,
        not_before=not_before,
    )


def _bus_handler(handler: CommandHandler) -> Callable[[Envelope], Awaitable[None]]:
    async def handle(envelope: Envelope) -> None:
        payload = envelope.payload
        try:
            await handler(payload["workflowId"], **payload["arguments"])
        except HeldElsewhere as error:  # that engine claims it
            raise Retry(str(error), after=_ELSEWHERE_SECONDS) from error
        except (BusError, StoreError, EngineReplaced, asyncio.CancelledError):
            raise  # the store is unavailable, or we stop: the command is retried, here or by another engine
        except WorkflowError as error:
            raise Reject(error.code, str(error)) from error
        except Exception as error:  # no retry: somebody waits for the answer
            raise Reject(type(error).__name__, f"{error}") from error

    return handle
