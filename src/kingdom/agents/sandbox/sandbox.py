"""Whether this machine can confine a run, and how the program of a run is wrapped.

The shim's child enters a network namespace (:mod:`~kingdom.agents.sandbox.namespace`) and executes bubblewrap, which
makes user, mount, pid, ipc, uts and cgroup namespaces, shows only what the :mod:`~kingdom.agents.sandbox.view` lists,
drops all capabilities and executes the program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import GATEWAY_URL, Confinement
from kingdom.agents.errors import InvalidOrder, SandboxUnavailable
from kingdom.agents.git_identity import as_variables, identity_of
from kingdom.agents.sandbox import namespace
from kingdom.agents.sandbox.limits import DEFAULTS
from kingdom.agents.sandbox.view import View, run_view
from kingdom.base.preload import preload

if TYPE_CHECKING:
    from kingdom.agents.port import Order, SandboxMode

STATUS_FD: Final = "{status_fd}"  # an argument that the shim replaces by a pipe: bubblewrap reports to it
MODE_VARIABLE: Final = "KINGDOM_SANDBOX"
_STRICTNESS: Final = ("off", "auto", "required")
_PROBE_SECONDS: Final = 20.0
_trying: Final = Lock()  # once, also if several threads ask
_CERTIFICATES: Final = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "PIP_CERT", "CARGO_HTTP_CAINFO"),
)
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_LOCAL: Final = "localhost,127.0.0.1,::1"
_ISOLATION: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--cap-drop", "ALL"),
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The program that confines, or why it cannot be used here."""

    path: str | None
    options: tuple[str, ...] = ()
    problem: str | None = None
    """What is missing, and what to do; None when it works."""


class Sandbox:
    """Confines runs.

    ``mode`` says whether it must. ``read`` are files and folders that every run may read, ``network`` hosts that every
    run may reach, ``limits`` what each run may use up (:mod:`~kingdom.agents.sandbox.limits`).
    """

    def __init__(
        self,
        mode: SandboxMode = "auto",
        *,
        read: Sequence[Path] = (),
        network: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.mode: SandboxMode = mode
        self.network = tuple(network)
        self.limits = {**DEFAULTS, **(limits or {})}
        self._read = tuple(read)

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Sandbox:
        """Make one from the section ``sandbox`` of system.yaml.

        Where that leaves the mode at ``auto``, ``KINGDOM_SANDBOX`` sets it. Raises :class:`InvalidOrder`.
        """
        paths = [Path(name).expanduser() for name in settings.get("read", ())]
        mode = settings.get("mode", "auto")
        if mode == "auto":
            mode = os.environ.get(MODE_VARIABLE) or "auto"
        if mode not in _STRICTNESS:
            raise InvalidOrder(f"{MODE_VARIABLE}={mode!r:.40} is invalid: use off, auto or required")
        return cls(
            mode,
            read=paths,
            network=settings.get("network", ()),
            limits=settings.get("limits"),
        )

    def confines(self, wanted: SandboxMode | None = None) -> bool:
        """Tell whether a run is confined. Raises :class:`SandboxUnavailable` when it must be and cannot."""
        mode = max(self.mode, wanted or "off", key=_STRICTNESS.index)
        if mode == "off":
            return False
        problem = find_bubblewrap().problem
        if problem is not None and mode == "required":
            raise SandboxUnavailable(f"agents must be confined here (sandbox: required), but {problem}")
        return problem is None

    def problem(self) -> str | None:
        """Say that agents are not confined, why, and what to do; None when they are."""
        if self.mode == "off":
            return f"agents are not confined: sandbox is off (config/system.yaml, or {MODE_VARIABLE})"
        problem = find_bubblewrap().problem
        if problem is None:
            return None
        return f"agents {'do not start' if self.mode == 'required' else 'are not confined'}: {problem}"

    def preload(self) -> None:
        """Try bubblewrap and load the gateway in a thread, if runs may be confined: a run need not wait for them."""
        if self.mode != "off":
            Thread(target=self._load, name="preload-sandbox", daemon=True).start()

    def _load(self) -> None:
        if self.problem() is None:
            preload("kingdom.agents.sandbox.gateway")

    def command(
        self,
        order: Order,
        confinement: Confinement,
        argv: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[Path] = (),
        *,
        reports: bool = True,
    ) -> list[str]:
        """Return the command that executes ``argv`` confined. With ``reports``, the shim fills in :data:`STATUS_FD`."""
        bubblewrap = find_bubblewrap()
        assert bubblewrap.path is not None, "confines() was not asked"
        view = self.view(order, confinement, environment, files)
        made = [bubblewrap.path, *bubblewrap.options, *view.arguments(), "--chdir", str(order.cwd)]
        if reports:
            made += ["--json-status-fd", STATUS_FD]
        return [*made, "--", *argv]

    def view(
        self, order: Order, confinement: Confinement, environment: Mapping[str, str], files: Sequence[Path] = ()
    ) -> View:
        """Return what a run sees."""
        certificates = [Path(environment[name]) for name in _CERTIFICATES if environment.get(name)]
        return run_view(order, confinement, files=files, read=(*self._read, *certificates), environment=environment)

    def environment(
        self, environment: Mapping[str, str], git_identity: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the environment of a confined run: its way out is the gateway, its temporary folder is private.

        It commits under ``git_identity``, else under the user's name, whose own files it cannot read.
        """
        made = {**environment, "TMPDIR": "/tmp", "NODE_USE_ENV_PROXY": "1"}  # noqa: S108
        made |= dict.fromkeys(_PROXIES, GATEWAY_URL)
        made |= dict.fromkeys(("NO_PROXY", "no_proxy"), _LOCAL)
        identity = identity_of(environment, git_identity)
        return made | as_variables({**identity, "gc.auto": "0", "maintenance.auto": "false", "safe.directory": "*"})

    def offline_command(self, folder: Path, argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return the command that executes ``argv`` in a folder, confined and without a network."""
        from kingdom.agents.port import Order

        order = Order("", "", "", "", folder, folder / "result.json", profile="edit")
        return self.isolated(self.command(order, Confinement(), argv, environment, reports=False))

    def isolated(self, command: Sequence[str]) -> list[str]:
        """Return a command that is executed with no network but loopback, for what no shim starts."""
        return [sys.executable, "-I", "-S", namespace.__file__, *command]


def find_bubblewrap() -> Bubblewrap:
    """Find bubblewrap, and try it. The answer does not change while this process runs."""
    with _trying:
        return _tried_bubblewrap()


@cache
def _tried_bubblewrap() -> Bubblewrap:
    if sys.platform != "linux":
        return Bubblewrap(None, problem="agents can be confined on Linux only")
    path = shutil.which("bwrap")
    if path is None:
        return Bubblewrap(None, problem="there is no program bwrap on the PATH: install bubblewrap")
    try:
        help_text = _run([path, "--help"]).stdout
        options = (*_ISOLATION, *(("--disable-userns",) if "--disable-userns" in help_text else ()))
        view = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        tried = _run([sys.executable, "-I", "-S", namespace.__file__, path, *options, *view, "--", "true"])
    except (OSError, subprocess.SubprocessError) as error:
        return Bubblewrap(path, problem=f"{path} cannot be run: {error}")
    if tried.returncode != 0:
        said = " ".join(tried.stderr.split())[:300] or f"exit code {tried.returncode}"
        return Bubblewrap(path, options, f"{path} cannot confine here: {said}. {_advice(said)}")
    return Bubblewrap(path, options)


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_PROBE_SECONDS,
        check=False,
    )


def _advice(said: str) -> str:
    if "namespace" in said or "uid map" in said or "Permission" in said or "permitted" in said:
        return (
            "Allow user namespaces for this user (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, "
            "or a container with --security-opt seccomp=unconfined)"
        )
    return "Run it by hand to see why"
