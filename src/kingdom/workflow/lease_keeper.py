"""What an engine does only while it shares its store with other engines.

It renews its lease, takes over workflows of engines that are gone, and leaves commands to the engine that holds their
workflow. If it cannot renew its lease in time, it stops its agents before the lease ends: then somebody else may go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import write_atomic
from kingdom.base.uptime import uptime
from kingdom.bus import Delivery, EventBus
from kingdom.bus.errors import TransportUnavailable
from kingdom.workflow.commands import LAND_AGAIN
from kingdom.workflow.context import WorkflowContext, log
from kingdom.workflow.errors import StoreError
from kingdom.workflow.store.holds import EngineHolds, EngineReplaced
from kingdom.workflow.usecases.lifecycle import finish_transition
from kingdom.workflow.usecases.takeover import hold_own, take_over_workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

_RENEWALS_PER_LEASE: Final = 3
_MARGIN: Final = 1 / 6  # of the lease, before whose end the agents are stopped
_COMMANDS_PER_LOOK: Final = 500


class LeaseKeeper:
    """Keeps the lease of an engine. ``fail`` is called with the error that ends the engine."""

    def __init__(self, context: WorkflowContext, holds: EngineHolds, fail: Callable[[BaseException], None]) -> None:
        self._context = context
        self._holds = holds
        self._fail = fail
        self._taking: asyncio.Task[None] | None = None
        self._takes_over = False
        self._unfinished: set[str] = set()  # workflows that were taken over, and then something failed

    def note(self) -> None:
        """Tell the agents when to stop and when to be gone: they look there, also when no engine is left."""
        if self._context.lease_file is not None:
            times = f"{self._stop_at} {self._holds.ends_at}"
            write_atomic(self._context.lease_file, times, durable=False, mode=0o600)

    @property
    def _stop_at(self) -> float:
        return self._holds.ends_at - self._holds.seconds * _MARGIN

    async def adopt(self) -> None:
        """Hold the workflows of this home that may go on and have no holder, from before the store was shared."""
        await hold_own(self._context, await self._holds.unheld())

    def take_over_others(self) -> None:
        """From now on, take over the workflows of engines that are gone."""
        self._takes_over = True
        self._look()

    async def run(self) -> None:
        """Renew the lease until that fails, or this is cancelled."""
        pause = self._holds.seconds / _RENEWALS_PER_LEASE
        try:
            while True:
                await asyncio.sleep(pause)
                pause = await self._renew()
                self._look()
        except EngineReplaced as error:
            log.error("%s", error)
            self._holds.give_up()
            try:
                await self._context.agents.stop_others((), "its engine has lost its lease")
            finally:
                self._fail(error)
        finally:
            if self._taking is not None:
                self._taking.cancel()

    async def _renew(self) -> float:
        """Renew the lease; return when to do so again. Raises :class:`EngineReplaced`."""
        holds = self._holds
        try:
            async with asyncio.timeout(max(self._stop_at - uptime(), 0.0)):
                await holds.renew()
            self.note()
        except EngineReplaced:
            raise
        except Exception as error:
            log.warning("the lease of the engine could not be renewed: %s: %s", type(error).__name__, error)
            if (left := self._stop_at - uptime()) <= 0:
                raise EngineReplaced(
                    f"the lease of this engine ({holds.home}) could not be renewed in time: its agents are stopped, "
                    "and another engine may go on with its workflows"
                ) from error
            return min(holds.seconds / _RENEWALS_PER_LEASE, left) / 4
        return holds.seconds / _RENEWALS_PER_LEASE

    def _look(self) -> None:
        """Look for workflows of engines that are gone, unless that is under way: it may have to clone."""
        if self._takes_over and (self._taking is None or self._taking.done()):
            self._taking = asyncio.create_task(self._take_over(), name="workflow-engine-take-over")

    async def _take_over(self) -> None:
        try:
            abandoned = await self._holds.abandoned()
        except Exception as error:  # noqa: BLE001 - the next look tries again
            log.warning("workflows of engines that are gone cannot be looked for: %s", error)
            return
        for workflow_id in [*self._unfinished]:
            await self._try(workflow_id, finish_transition(self._context, workflow_id))
        for workflow_id, home in abandoned:
            await self._try(workflow_id, take_over_workflow(self._context, workflow_id, home))

    async def _try(self, workflow_id: str, step: Coroutine[Any, Any, object]) -> None:
        """Do something for a workflow; what fails is tried again at the next look, and does not keep others waiting."""
        self._unfinished.discard(workflow_id)
        try:
            await step
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("workflow %s cannot be taken over now: %s", workflow_id, error, exc_info=error)
            if self._holds.is_mine(workflow_id):
                self._unfinished.add(workflow_id)


class HeldCommands(EventBus):
    """The bus as an engine's command worker sees it: without commands for workflows that other engines hold."""

    def __init__(self, bus: EventBus, holds: EngineHolds) -> None:
        super().__init__(bus.transport, bus.url)
        self._holds = holds

    async def claim(
        self, stream: str, *, limit: int | None = None, types: Iterable[str] | None = None, **more: Any
    ) -> list[Delivery]:
        """Claim commands whose workflow this engine holds, nobody holds, or an engine that is gone.

        Landing waits for that one: only its machine has the branch.
        """
        kinds = None if types is None else list(types)
        records = await self.peek(stream, limit=_COMMANDS_PER_LOOK, types=kinds)
        try:
            others = await self._holds.others({str(record.envelope.aggregate_id) for record in records})
        except StoreError as error:
            raise TransportUnavailable(str(error)) from error  # the worker knows this one, and tries again
        running = {workflow_id for workflow_id, holder in others.items() if holder.alive}
        commands = [record.envelope for record in records]
        free = [
            one.event_id for one in commands if one.aggregate_id not in (others if one.type == LAND_AGAIN else running)
        ]
        return await super().claim(stream, **more | {"types": kinds, "ids": free[: limit or None]})
