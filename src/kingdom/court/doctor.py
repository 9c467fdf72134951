"""The checks of ``kingdom doctor``: the home, the machine, the configuration, generals, roles and queues."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING, Final, Literal

from kingdom.agents.engine import InstalledEngine
from kingdom.agents.errors import SandboxUnavailable
from kingdom.agents.sandbox.probes import has_own_sandbox, try_in_sandbox, try_own_sandbox
from kingdom.agents.sandbox.proof import prove
from kingdom.bus import BusError, Check
from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS
from kingdom.court.bootstrap import configured_engines, configured_sandbox
from kingdom.court.chamberlain import config as chamberlain
from kingdom.court.config import load_system
from kingdom.court.environment import unread_env_file
from kingdom.court.envoy.config import ENVOY_FILE as ENVOY
from kingdom.court.envoy.config import load_envoy, slack_tokens
from kingdom.court.errors import CourtError, InvalidConfig, UnsetVariable
from kingdom.court.loop import Services
from kingdom.court.machines.capacity import runs_here
from kingdom.court.packages.installed import load_generals
from kingdom.court.packages.installer import check_package
from kingdom.court.patterns import matches_any
from kingdom.court.queues import declare_queues, find_document, open_queues
from kingdom.court.request_threads import REQUEST_EVENTS, SHIPPED_GENERAL, untaken_requests, untaken_warning
from kingdom.court.sentinel.config import SENTINEL_FILE as SENTINEL
from kingdom.court.sentinel.config import SentinelConfig, load_sentinel
from kingdom.court.soldiers import all_soldiers
from kingdom.court.supervisor.record import read_record
from kingdom.court.trust.config import TRUST_FILE as TRUST
from kingdom.court.trust.config import Tier, load_trust
from kingdom.court.trust.policy import Permit
from kingdom.gitops.credentials import host_of
from kingdom.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.port import SandboxMode
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.packages.installed import GeneralPackage, Generals


_FIX_LINE_HINT: Final = "fix that line"
_SLACK_HINT: Final = "kingdom connect slack says how to set it up"
_SET_VARIABLE_HINT: Final = "export it here and where kingdom up is started; EnvironmentFile= in a systemd unit"


def check_config_files(home: Home, environment: Mapping[str, str] | None = None) -> list[Check]:
    """Check every configuration file except ``system.yaml``, which the caller has loaded."""
    env = os.environ if environment is None else environment
    readers: dict[str, Callable[[], Iterator[Check]]] = {
        SENTINEL: lambda: _check_sentinel(home, env),
        ENVOY: lambda: _check_envoy(home, env),
        TRUST: lambda: _check_trust(home),
        chamberlain.FILE: lambda: _check_chamberlain(home),
    }
    found: list[Check] = []
    for name, read in readers.items():
        try:
            found += read()
        except InvalidConfig as error:
            found += [Check(name, "error", problem, _FIX_LINE_HINT) for problem in str(error).split("\n")]
    return found


def _check_sentinel(home: Home, env: Mapping[str, str]) -> Iterator[Check]:
    config = load_sentinel(home)
    watched = [name for name in ("github", "jira", "local") if (one := getattr(config, name)) and one.enabled]
    yield Check(SENTINEL, "ok", f"watches {', '.join(watched)}" if watched else "watches nothing")
    for what, variable in _secret_variables(config):
        if not env.get(variable, "").strip():
            message = f"{what} needs the environment variable {variable}, which is not set here"
            hint = "set it where the court is started: kingdom connect checks it"
            yield Check(SENTINEL, "warning", message, unread_env_file(home, variable, environ=env) or hint)


def _secret_variables(config: SentinelConfig) -> Iterator[tuple[str, str]]:
    for name, section in (("github", config.github), ("jira", config.jira)):
        if section is not None and section.enabled:
            yield name, section.token_env
    for name, hook in (("github", config.webhooks.github), ("jira", config.webhooks.jira)):
        if hook is not None:
            yield f"webhooks.{name}", hook.secret_env
    for name, generic in config.webhooks.generic.items():
        yield f"webhooks.generic.{name}", generic.token_env


def _check_envoy(home: Home, env: Mapping[str, str]) -> Iterator[Check]:
    slack = load_envoy(home).slack
    unread = unread_env_file(home, slack.bot_token_env, slack.app_token_env, environ=env)
    try:
        tokens = slack_tokens(slack, env)
    except InvalidConfig as error:
        hint = "set them where the court is started: kingdom connect slack"
        yield Check(ENVOY, "warning", str(error), unread or hint)
        return
    yield Check(ENVOY, "ok", "messages go to the console" if tokens is None else "messages go to Slack")
    generals = [general.manifest for general in load_generals(home).by_name.values()]
    untaken = untaken_requests(generals)
    if tokens is not None and untaken:
        yield Check(ENVOY, "warning", untaken_warning(untaken), f"kingdom general install {SHIPPED_GENERAL}")
    for manifest in generals if tokens is None else ():
        if len(untaken_requests([manifest])) < len(REQUEST_EVENTS):
            yield Check(ENVOY, "warning", f"{manifest.name} takes requests from Slack, and it is not used", _SLACK_HINT)
    if tokens is not None and not slack.users and not _has_slack_rules(home):
        yield Check(ENVOY, "warning", "no Slack user is allowed", f"name them in slack.users, or in config/{TRUST}")


def _has_slack_rules(home: Home) -> bool:
    with contextlib.suppress(InvalidConfig):  # reported by _check_trust
        return any(rule.source == "slack" for rule in load_trust(home).rules)
    return True


def _check_chamberlain(home: Home) -> Iterator[Check]:
    problem = chamberlain.ChamberlainConfigFile(home).load().problem
    if problem is not None:
        raise InvalidConfig(problem)
    yield Check(chamberlain.FILE, "ok", "is valid")


def _check_trust(home: Home) -> Iterator[Check]:
    config, generals = load_trust(home), load_generals(home).by_name
    if not config.decides:
        yield Check(TRUST, "ok", "everybody may use all generals")
        return
    yield Check(TRUST, "ok", f"{len(config.rules)} rules; everybody else: {config.everybody_else}")
    used = {config.everybody_else, *(rule.tier for rule in config.rules)}
    for name, tier in config.tiers.items():
        if name not in used:
            yield Check(TRUST, "warning", f"no rule uses the tier {name}", "name it in a rule, or remove it")
        for pattern in tier.generals or []:
            if not any(matches_any(general, [pattern]) for general in generals):
                yield Check(TRUST, "warning", f"tier {name}: no general is called {pattern}", "kingdom general ls")
        if not any(_may_use(tier, one, config.sandboxed) for one in generals.values()):
            hint = "kingdom doctor says why agents cannot be confined here" if tier.sandbox else "see generals"
            yield Check(TRUST, "warning", f"tier {name} can use none of the installed generals", hint)


def _may_use(tier: Tier, general: GeneralPackage, sandboxed: Iterable[str]) -> bool:
    permit = Permit("", "", tier.profile, tier.sandbox, tier.mcp, tuple(sandboxed))
    allowed = tier.generals is None or matches_any(general.manifest.name, tier.generals)
    return allowed and permit.denial_reason(general.manifest) is None


_LOW_DISK_BYTES: Final = 1 << 30  # less free space is a warning
_FULL_DISK_BYTES: Final = 100 << 20
_GIT_TIMEOUT_SECONDS: Final = 10.0


async def run_checks(
    home: Home,
    clock: Callable[[], float],
    waiting: Callable[[str], AbstractContextManager[object]] = contextlib.nullcontext,
) -> list[Check]:
    """Run all checks. What cannot be checked is reported as an error. ``waiting`` surrounds the connecting to a URL."""
    checks = [*_check_folders(home), _check_disk(home), await _check_git()]
    try:
        system = load_system(home)
        url = system.queue_url(home)
    except UnsetVariable as error:
        return [*checks, Check("config", "error", str(error), _SET_VARIABLE_HINT)]
    except CourtError as error:
        return checks + [Check("config", "error", problem, _FIX_LINE_HINT) for problem in str(error).split("\n")]
    checks.append(Check("config", "ok", "config/system.yaml is valid"))
    checks += check_config_files(home)
    generals = load_generals(home)
    checks += await check_git_hosts(system, [name for name, one in generals.by_name.items() if one.manifest.land])
    checks += await _check_generals(home, system, generals)
    checks += check_sources(home, system, generals)
    checks += await asyncio.to_thread(check_sandbox, system)
    here = generals.on(runs_here(home))
    checks += await check_engine_sandboxes(here, configured_engines(system), configured_sandbox(system))
    checks += _check_processes(home)
    try:
        async with contextlib.AsyncExitStack() as stack:
            with waiting(url):
                bus = await stack.enter_async_context(open_queues(url, INTERACTIVE_CONNECT_SECONDS))
            await declare_queues(bus)
            checks += [check._replace(name=f"queues: {check.name}") for check in await bus.doctor()]
            checks += await _check_soldiers(Services(home, bus, Journal(home.journal), clock))
    except BusError as error:
        checks.append(Check("queues", "error", str(error)))
    return checks


def _in_database(home: Home) -> bool:
    """Whether the queues are named by a URL; False when the configuration is invalid, which another check reports."""
    try:
        return load_system(home).has_shared_queues
    except CourtError:
        return False


def _check_folders(home: Home) -> list[Check]:
    found = []
    queues = [] if _in_database(home) else [home.queue]
    for folder in (*queues, home.state, home.logs, home.memory, home.workspace, home.config):
        name = folder.name + "/"
        if not folder.is_dir():
            found.append(
                Check(name, "error", f"{folder} is missing", f"kingdom init {home.root} creates what is missing")
            )
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            found.append(Check(name, "error", f"{folder} cannot be written by this user", "chown or chmod it"))
        elif folder.stat().st_mode & stat.S_IWOTH:
            hint = f"chmod o-w {folder}: anybody who can write here can run agents as you"
            found.append(Check(name, "error", f"{folder} can be written by anybody on this machine", hint))
    return found or [Check("folders", "ok", f"all folders of {home.root} exist and are writable")]


def _check_disk(home: Home) -> Check:
    free = shutil.disk_usage(home.root).free
    message = f"{free / (1 << 30):.1f} GiB free"
    if free < _FULL_DISK_BYTES:
        return Check("disk", "error", message, "free some space: on a full disk no event or result can be written")
    return Check("disk", "warning" if free < _LOW_DISK_BYTES else "ok", message, "free some space before it is full")


async def _check_git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check("git", "error", "no git on the PATH", "install git: worktrees and evidence need it")
    process = await asyncio.create_subprocess_exec(
        path, "--version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_GIT_TIMEOUT_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Check("git", "error", f"{path} does not answer", "run it by hand to see why")
    return Check("git", "ok", f"{said.decode(errors='replace').strip()} ({path})")


async def check_git_hosts(system: SystemConfig, landing: Sequence[str] = ()) -> list[Check]:
    """Check that there is a token for each git host that is configured, and say whether there is for the usual one.

    ``landing`` are the generals that need one there: they push branches, or post reviews.
    """
    credentials = system.git.settings().credentials
    usual = host_of(system.repos.base_url)
    found = []
    for host in dict.fromkeys([*([usual] if usual else []), *credentials.named_hosts]):
        lookup = await credentials.find(host)
        if lookup.credential is not None:
            found.append(Check(f"git host {host}", "ok", f"its token comes from {lookup.source}"))
        elif credentials.expects(host):
            found.append(Check(f"git host {host}", "warning", "it has no token", lookup.advice))
        elif landing and host == usual:
            message = f"it has no token: what {' and '.join(sorted(landing))} did cannot be brought there"
            found.append(Check(f"git host {host}", "warning", message, lookup.advice))
        else:
            message = f"it has no token, so only public repositories can be used ({lookup.advice})"
            found.append(Check(f"git host {host}", "ok", message))
    return found


async def _check_generals(home: Home, system: SystemConfig, generals: Generals) -> list[Check]:
    engines = configured_engines(system)
    found = []
    for name in sorted({*generals.by_name, *generals.broken}):
        problems = check_package(home.general(name), list(engines))
        found += [Check(f"general {name}", "error", problem) for problem in problems]
        if not problems:
            found.append(Check(f"general {name}", "ok", "its files are valid"))
    found += await check_engines(generals.on(runs_here(home)), engines)
    return found or [Check("generals", "warning", "no general is installed", "kingdom general install DIR")]


def check_sources(home: Home, system: SystemConfig, generals: Generals) -> list[Check]:
    """Check that what generals take from GitHub and Jira is watched. Files in the local folder may be anything."""
    if system.machine is not None and system.machine.joined:
        return []  # another machine watches
    try:
        config = load_sentinel(home)
    except InvalidConfig:  # another check reports it
        return []
    if config.local is not None and config.local.enabled:
        return []
    watched = {"github": (config.github, config.webhooks.github), "jira": (config.jira, config.webhooks.jira)}
    found = []
    for source, (section, hook) in watched.items():
        if hook is not None or (section is not None and section.enabled):
            continue
        for name, general in sorted(generals.by_name.items()):
            types = [one.type for one in general.manifest.subscribes if one.type.startswith(f"{source}.")]
            if types:
                message = f"it takes {types[0]}, and nothing watches {source}"
                hint = f"uncomment {source}: in config/{SENTINEL}, then: kingdom connect {source}"
                found.append(Check(f"general {name}", "warning", message, hint))
    return found


async def check_engines(generals: Generals, engines: Mapping[str, Engine | InProcessEngine]) -> list[Check]:
    """Check the engines that generals use."""
    found = []
    used = {general.manifest.engine.name for general in generals.by_name.values()}
    for name in sorted(used & set(engines)):
        state = await engines[name].examine()
        users = ", ".join(one for one, general in generals.by_name.items() if general.manifest.engine.name == name)
        if state.ok:
            version = " ".join(part for part in (state.version, f"({state.path})" if state.path else "") if part)
            found.append(Check(f"engine {name}", "ok", version or "built in"))
        else:
            found.append(Check(f"engine {name}", "error", state.problem or "cannot be used", f"used by {users}"))
    return found


async def engine_problems(home: Home) -> list[str]:
    """Return why generals cannot work now: engines that are missing or cannot be used. Their tasks are held back."""
    checks = await check_engines(load_generals(home).on(runs_here(home)), configured_engines(load_system(home)))
    return [
        f"{check.message} ({check.hint}): tasks wait until it is there" for check in checks if check.level == "error"
    ]


async def check_engine_sandboxes(
    generals: Generals, engines: Mapping[str, Engine | InProcessEngine], sandbox: Sandbox
) -> list[Check]:
    """Run a command through the sandbox of each engine that a general uses: ours, or its own where ours is off."""
    found = []
    for name in sorted(engines.keys() & {general.manifest.engine.name for general in generals.by_name.values()}):
        engine = engines[name]
        manifests = [one.manifest for one in generals.by_name.values() if one.manifest.engine.name == name]
        if not isinstance(engine, InstalledEngine) or not (await engine.examine()).ok:
            continue  # it starts no program, or the check of engines says what is wrong
        confined = [_is_confined(sandbox, manifest.sandbox) for manifest in manifests]
        if any(confined):
            problem = await try_in_sandbox(engine, sandbox, engine.program_path())
            found.append(_sandbox_check(name, "the court's sandbox", problem, "kingdom sandbox check"))
        needs_own = [
            one for one, inside in zip(manifests, confined, strict=True) if not inside and one.profile != "full"
        ]
        if needs_own and has_own_sandbox(engine):
            problem = await try_own_sandbox(engine, engine.program_path())
            hint = f"used by {', '.join(one.name for one in needs_own)}: install bubblewrap, and have sandbox: auto"
            found.append(_sandbox_check(name, "its own sandbox", problem, hint))
    return found


def _is_confined(sandbox: Sandbox, wanted: SandboxMode | None) -> bool:
    try:
        return sandbox.confines(wanted)
    except SandboxUnavailable:  # check_sandbox says so
        return False


def _sandbox_check(engine: str, where: str, problem: str | None, hint: str) -> Check:
    if problem is None:
        return Check(f"engine {engine}", "ok", f"ran a command in {where}")
    return Check(f"engine {engine}", "error", f"every command fails in {where}: {problem}", hint)


def check_sandbox(system: SystemConfig) -> list[Check]:
    """Try to get out of the sandbox."""
    sandbox = configured_sandbox(system)
    problem = sandbox.problem()
    if problem is not None:
        level: Literal["error", "warning"] = "error" if system.sandbox.mode == "required" else "warning"
        hint = (
            "an agent that is talked into it can read the files and keys of this user: docs/explanation/confinement.md"
        )
        return [Check("sandbox", level, problem, hint)]
    try:
        attempts = prove(sandbox)
    except OSError as error:
        return [Check("sandbox", "error", f"it cannot be tried: {error}", "kingdom sandbox check")]
    escaped = [attempt for attempt in attempts if attempt.escaped]
    if not escaped:
        return [Check("sandbox", "ok", f"{len(attempts)} attempts to get out were stopped (kingdom sandbox check)")]
    hint = "set sandbox: off and run no agents on texts of strangers, or ask for help with this output"
    return [Check("sandbox", "error", f"an agent can {one.words}: {one.detail}", hint) for one in escaped]


def _check_processes(home: Home) -> list[Check]:
    record = read_record(home)
    if record is None:
        return [Check("court", "ok", "not up")]
    if record.supervisor.alive:
        failed = [
            Check(f"role {name}", "error", f"died {role.deaths} times in a row: {role.reason}")
            for name, role in record.roles.items()
            if role.state == "failed"
        ]
        return [Check("court", "ok", f"up (pid {record.supervisor.pid})"), *failed]
    strays = [
        Check(
            f"role {name}",
            "error",
            f"still runs without its supervisor (pid {role.process.pid})",
            "kingdom up ends it and starts it again",
        )
        for name, role in record.roles.items()
        if role.process is not None and role.process.alive
    ]
    return [Check("court", "ok", "not up"), *strays]


async def _check_soldiers(services: Services) -> list[Check]:
    """Report soldiers whose task has ended: no general will read their result."""
    found = []
    for soldier in all_soldiers(services.home):
        if not soldier.alive:
            continue
        task = await find_document(services, soldier.task_id)
        state = None if task is None else task.document.get("status")
        if state not in ("pending", "in_progress"):
            found.append(
                Check(
                    f"soldier {soldier.id}",
                    "warning",
                    f"runs (pid {soldier.pid}), but its task {soldier.task_id} is {state or 'gone'}",
                    "kingdom down --soldiers ends all soldiers",
                )
            )
    return found
