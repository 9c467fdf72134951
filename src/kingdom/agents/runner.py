"""Start and adopt runs: the implementation of :class:`kingdom.agents.port.Agents`."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents import contract
from kingdom.agents.engine import (
    PROMPT_PATH,
    RUN_KEY,
    ConfinableEngine,
    Confinement,
    Engine,
    InProcessEngine,
    Launch,
    run_environment,
)
from kingdom.agents.engines import find_engine
from kingdom.agents.errors import AgentsError, InvalidOrder, StartFailed
from kingdom.agents.folder import ProcessIdentity, RunFolder
from kingdom.agents.git_identity import as_variables, missing_identity
from kingdom.agents.hosts import AgentHost, ProcessHost
from kingdom.agents.ledger import Ledger
from kingdom.agents.port import OnEvent, Order, Running
from kingdom.agents.process_run import ProcessRun, RunFileWatch, ShimWatch, kill_strays, poll_interval
from kingdom.agents.run import BaseRun, EndedRun, InProcessRun, RunDeps, log
from kingdom.agents.sandbox.sandbox import Sandbox
from kingdom.agents.transcript import read_end
from kingdom.base.batches import Batcher
from kingdom.base.files import write_atomic

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from kingdom.agents.sandbox.gateway import Gateway

_START_SECONDS: Final = 30.0  # for a shim to write its identity; it takes 0.05 on an idle machine
_CEILING_MARGIN: Final = 60.0  # seconds beyond all timers, after which a shim stops a run without the daemon


class Runner:
    """Runs agents: one runner for each event loop, with any number of runs."""

    def __init__(
        self,
        *,
        soldiers: Path,
        sessions: Path,
        ledger: Ledger | Path,
        engines: Mapping[str, Engine | InProcessEngine],
        host: AgentHost | None = None,
        clock: Callable[[], float] = time.time,
        environ: Mapping[str, str] | None = None,
        sandbox: Sandbox | None = None,
        on_refusal: Callable[[Order, str], None] | None = None,
        git_identity: Mapping[str, str] | None = None,
        lease: Path | None = None,
    ) -> None:
        """Make a runner. Agents commit under ``git_identity`` (``user.name``, ``user.email``), else as the user.

        At the first time in the file ``lease`` (seconds of :func:`~kingdom.base.uptime.uptime`) they stop, and before
        the second one they are gone.
        """
        ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        entries = Batcher[dict[str, Any]](lambda lines: ledger.append(*lines))
        self._deps = RunDeps(soldiers.absolute(), sessions.absolute(), ledger, entries, clock)
        self._engines = engines
        self._host = host or ProcessHost()
        self._environ = os.environ if environ is None else environ
        self._sandbox = sandbox or Sandbox("off")
        self._on_refusal = on_refusal
        self._git_identity = git_identity
        self._lease = {} if lease is None else {"lease": str(lease)}
        self._gateway: Gateway | None = None
        self._files = RunFileWatch()
        self._active: dict[str, BaseRun] = {}

    async def start(self, order: Order, on_event: OnEvent | None = None) -> Running:
        """Start a run. Raises an error of :mod:`kingdom.agents.errors` when it cannot be started."""
        folder = RunFolder(self._deps.soldiers, order.run_id)
        engine = find_engine(self._engines, order.engine)
        _check(order)
        if is_in_process(engine):
            launch = None
        else:
            confined = await asyncio.to_thread(self._sandbox.confines, order.sandbox)
            network = (*self._sandbox.network, *order.network) if confined else order.network
            order = replace(order, confined=confined, network=network)
            if confined and "HOME" in self._environ:  # the engine shows its files below it
                order = replace(order, env={"HOME": self._environ["HOME"], **order.env})
            launch = engine.launch(order)
        folder.create()
        try:
            self._prepare(folder, order)
            identity = await self._launch(folder, order, launch, engine) if launch else None
        except (AgentsError, OSError) as error:
            self._close_gateway(order.run_id)
            folder.give_up()
            await asyncio.to_thread(kill_strays, order.run_id)
            if isinstance(error, AgentsError):
                raise
            raise StartFailed(f"run {order.run_id} could not be started: {error}") from error
        if is_in_process(engine):
            return self._begin(InProcessRun(self._deps, folder, order, on_event, player=engine))
        assert identity is not None
        contract.preload_model()  # only now: until the agent works, it waits for whatever this process does
        return self._begin(self._process_run(folder, order, on_event, engine, identity))

    async def adopt(self, run_id: str, on_event: OnEvent | None = None) -> Running | None:
        """Take over a run that an earlier process started. Of its earlier events only ``Began`` is repeated."""
        if run_id in self._active:
            return self._active[run_id]
        folder = RunFolder(self._deps.soldiers, run_id)
        order = folder.read_order(self._environ)
        if order is None:
            await self._abandon(folder)
            return None
        if (outcome := folder.read_outcome()) is not None:
            return EndedRun(run_id, outcome)
        engine = find_engine(self._engines, order.engine)
        if is_in_process(engine):
            return await self._adopt_in_process(folder, order, on_event, engine)
        # Without an identity it is given up, unless the shim writes one at this moment: then it runs.
        identity = folder.read_identity() or (None if folder.give_up() else folder.read_identity())
        if identity is None:
            await asyncio.to_thread(kill_strays, run_id)
            return None
        if order.confined:
            self._make_gateway().reopen_run(folder, order, confinement_of(engine, order))
        run = self._process_run(folder, order, on_event, engine, identity, adopted=True)
        return self._begin(run)

    async def close(self) -> None:
        """Stop watching all runs; those with a process continue. Safe to call twice."""
        await asyncio.gather(*(run.detach() for run in list(self._active.values())))
        if self._gateway is not None:
            await self._gateway.close()

    def _begin(self, run: BaseRun) -> BaseRun:
        run.begin()
        self._active[run.run_id] = run
        run.when_done(self._ended)
        return run

    def _ended(self, run_id: str) -> None:
        self._active.pop(run_id, None)
        self._close_gateway(run_id)

    def _make_gateway(self) -> Gateway:
        if self._gateway is None:
            from kingdom.agents.sandbox.gateway import Gateway  # with an HTTP client: only when a run is confined

            self._gateway = Gateway(self._environ, self._on_refusal)
        return self._gateway

    def _close_gateway(self, run_id: str) -> None:
        if self._gateway is not None:
            self._gateway.close_run(run_id)

    def _process_run(
        self,
        folder: RunFolder,
        order: Order,
        on_event: OnEvent | None,
        engine: Engine,
        identity: ProcessIdentity,
        *,
        adopted: bool = False,
    ) -> ProcessRun:
        return ProcessRun(
            self._deps,
            folder,
            order,
            on_event,
            engine=engine,
            files=self._files,
            identity=identity,
            adopted=adopted,
        )

    async def _adopt_in_process(
        self, folder: RunFolder, order: Order, on_event: OnEvent | None, player: InProcessEngine
    ) -> Running:
        """Conclude a run inside a process that is gone: it was killed with it."""
        run = InProcessRun(self._deps, folder, order, on_event, player=player)
        return EndedRun(order.run_id, await run.conclude_lost())

    async def _abandon(self, folder: RunFolder) -> None:
        """Ensure that nothing is left of a run without an order, and that it never starts."""
        if folder.path.is_dir():
            log.warning("%s has no order: the run is given up", folder.path)
            folder.give_up()
            await asyncio.to_thread(kill_strays, folder.run_id)

    def _prepare(self, folder: RunFolder, order: Order) -> None:
        """Write what the run needs, and remove the result of an earlier attempt, which must not count for this one."""
        if not order.result_path.parent.is_dir():
            order.result_path.parent.mkdir(parents=True, exist_ok=True)
        if order.result_path.is_dir() and not order.result_path.is_symlink():  # left by a hostile agent
            shutil.rmtree(order.result_path)
        order.result_path.unlink(missing_ok=True)
        _touch(self._deps.transcript(order.run_id))
        try:
            folder.write_order(order)
        except TypeError as error:
            raise InvalidOrder(f"run {order.run_id}: its options must be JSON: {error}") from None

    async def _launch(
        self, folder: RunFolder, order: Order, launch: Launch, engine: Engine | InProcessEngine
    ) -> ProcessIdentity:
        """Start the shim, and return the identity that it writes."""
        made = run_environment(order, self._environ, launch.env)
        if order.confined:
            made |= launch.env  # the engine has seen the order's variables, and keeps the model's key back
        write_atomic(folder.prompt, order.prompt.encode("utf-8", "replace"), durable=False, mode=0o600)
        write_atomic(folder.stdin, launch.stdin, durable=False, mode=0o600)
        timers = order.timers
        argv = [str(folder.prompt) if argument == PROMPT_PATH else argument for argument in launch.argv]
        confined: dict[str, Any] = {}
        if order.confined:
            confinement = confinement_of(engine, order)
            gateway = self._make_gateway()
            key = gateway.open_run(folder, order, confinement)
            made = await asyncio.to_thread(self._sandbox.environment, made, self._git_identity)
            made = {name: key if value == RUN_KEY else value for name, value in made.items()}
            files = [folder.prompt, *([order.mcp_config] if order.mcp_config else ()), Path(argv[0])]
            argv = self._sandbox.command(order, confinement, argv, made, files)
            confined = {"network": gateway.ports(order.run_id), "limits": self._sandbox.limits}
        elif "GIT_CONFIG_COUNT" not in made:
            made |= await asyncio.to_thread(_identity_variables, made, self._git_identity)
        spec = {
            "run_id": order.run_id,
            "folder": str(folder.path),
            "argv": argv,
            **confined,
            **self._lease,
            "cwd": str(order.cwd),
            "stdin": str(folder.stdin),
            "stdout": str(self._deps.transcript(order.run_id)),
            "stderr": str(self._deps.errors(order.run_id)),
            "stop": timers.stop,
            "ceiling": 2 * timers.total + timers.after_result + 2 * timers.stop + _CEILING_MARGIN,
        }
        child = await self._host.start(folder, spec, made)
        woken = asyncio.Event()
        shim = ShimWatch(child, None, woken.set) if child is not None else None
        try:
            with self._files.follow(folder.prompt, folder.path, woken.set) as notified:
                async with asyncio.timeout(_START_SECONDS):
                    while True:
                        ended = shim is not None and not shim.running  # first: a short run may be over by now
                        if (identity := folder.read_identity()) is not None:
                            break
                        if ended:
                            said = read_end(folder.log) or "it printed nothing"
                            raise StartFailed(f"the shim of run {order.run_id} did not start: {said}")
                        await _sleep_until(woken, poll_interval(notified=notified) / 10)
        except TimeoutError:
            raise StartFailed(f"the shim of run {order.run_id} did not start within {_START_SECONDS:g} s") from None
        finally:
            if shim is not None:
                shim.close()
        return identity


def is_in_process(engine: Engine | InProcessEngine) -> TypeIs[InProcessEngine]:
    """Tell whether an engine runs inside our process."""
    return hasattr(engine, "play")


def confinement_of(engine: Engine | InProcessEngine, order: Order) -> Confinement:
    """Return what an engine needs in its sandbox."""
    return engine.confinement(order) if isinstance(engine, ConfinableEngine) else Confinement()


def _identity_variables(environment: Mapping[str, str], configured: Mapping[str, str] | None) -> dict[str, str]:
    settings = missing_identity(environment, configured)
    return as_variables(settings) if settings else {}


async def _sleep_until(woken: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        return
    woken.clear()


def _touch(transcript: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        os.close(os.open(transcript, flags, 0o600))
    except FileNotFoundError:
        transcript.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(transcript, flags, 0o600))


def _check(order: Order) -> None:
    if not order.cwd.is_dir():
        raise InvalidOrder(f"run {order.run_id}: there is no folder {order.cwd} to work in")
    if not order.result_path.is_absolute():
        raise InvalidOrder(f"run {order.run_id}: the result path {order.result_path} must be absolute")
