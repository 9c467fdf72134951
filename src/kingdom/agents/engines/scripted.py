"""An engine that plays a script instead of running a model: for demos, tests and trying out a court.

``options["script"]`` is a list of steps, the path of a YAML or JSON file with one, or a mapping. A mapping with
``steps`` (and ``on_resume``, for a run that continues a session) is a script. Any other mapping chooses a script by the
order's labels: its keys are matched with the label ``task_type``, then with the other labels (``github.pr.*`` is a
pattern), then ``default`` is used.

A step is a mapping with one key::

    say: text                          wait: seconds
    tool: {name, detail}               usage: {input, output, cache_read, cache_write, cost_usd, turns}
    write: {path, text}                commit: message, or {message}
    ask: {question, choices}           result: {status, summary, …}
    fail: why                          rate_limit: {seconds}
    crash: true

``{name}`` in a text is replaced by that field of ``.kingdom-task.json`` or of its payload (``{answer}`` in a resume).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from kingdom.agents.contract import check_result
from kingdom.agents.engine import AgentCrashed, Examined, inherited_environment
from kingdom.agents.errors import InvalidResult, InvalidScript
from kingdom.agents.port import Began, Finished, OnEvent, Order, RateLimit, Text, Tokens, ToolUse, Usage
from kingdom.base.files import read_object, write_json

_GIT: Final = (
    *("git", "-c", "user.name=Scripted", "-c", "user.email=scripted@kingdom.invalid", "-c", "commit.gpgsign=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
)


def write_below(folder: Path, path: str, text: str) -> None:
    """Write a file that, after following links, is below ``folder``."""
    root = folder.resolve()
    target = (root / path).resolve()
    if target == root or not target.is_relative_to(root):
        raise InvalidScript(f"write: {path!r:.80} is not below the working folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


async def commit(folder: Path, message: str) -> None:
    """Commit all changes in ``folder``."""
    await _git(folder, "add", "--all")
    await _git(folder, "commit", "--quiet", "--allow-empty", "--no-verify", "-m", message)


async def _git(folder: Path, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(*_GIT, *arguments),
        cwd=folder,
        env={**inherited_environment(os.environ), "GIT_TERMINAL_PROMPT": "0"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise InvalidScript(f"git {arguments[0]} in {folder} failed: {errors.decode(errors='replace').strip()[:500]}")


TASK_FILE: Final = ".kingdom-task.json"
_FIELD: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_MODEL: Final = "scripted"


class ScriptedEngine:
    """Plays scripts inside our own process."""

    name = "scripted"

    def __init__(self, settings: Mapping[str, Any] | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings or {}
        self._clock = clock

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Play the script of the order."""
        script = order.options.get("script", self._settings.get("script"))
        steps = choose_steps(script, order.labels, resume=order.session_id is not None)
        on_event(Began(order.session_id or str(uuid.uuid4()), order.model or _MODEL))
        return await _ScriptRun(order, on_event, self._clock).play(steps)

    async def examine(self) -> Examined:
        """Return ok: it needs nothing."""
        return Examined(ok=True)


class _ScriptRun:
    """One run of a script."""

    def __init__(self, order: Order, on_event: OnEvent, clock: Callable[[], float]) -> None:
        self._order = order
        self._on_event = on_event
        self._clock = clock
        self._tokens = Tokens()
        self._cost: float | None = None
        self._turns = 0
        self._task: Mapping[str, Any] = read_object(order.cwd / TASK_FILE)

    async def play(self, steps: Sequence[Any]) -> Finished:
        text: str | None = None
        for number, step in enumerate(steps, 1):
            word, data = _split(step, number)
            finished = await self._do(word, self._filled(data), number)
            if finished is not None:
                return finished
            if word == "say":
                text = str(self._filled(data))
        return Finished(ok=True, text=text)

    async def _do(self, word: str, data: Any, number: int) -> Finished | None:
        try:
            action = _ACTIONS[word]
        except KeyError:
            raise InvalidScript(f"step {number}: {word!r:.80} is not a step: use {', '.join(_ACTIONS)}") from None
        try:
            finished: Finished | None = await action(self, data)
        except (KeyError, TypeError, AttributeError, InvalidResult) as error:
            raise InvalidScript(f"step {number}, {word}: {data!r:.120} is invalid ({error})") from None
        return finished

    async def say(self, data: Any) -> None:
        self._on_event(Text(str(data)))

    async def tool(self, data: Any) -> None:
        made = {"name": data} if isinstance(data, str) else data
        self._on_event(ToolUse(str(made["name"]), str(made.get("detail", ""))))

    async def write(self, data: Any) -> None:
        self._on_event(ToolUse("Write", str(data["path"])))
        write_below(self._order.cwd, str(data["path"]), str(data["text"]))

    async def commit(self, data: Any) -> None:
        message = data["message"] if isinstance(data, Mapping) else data
        self._on_event(ToolUse("Bash", f"git commit -m {message!r}"))
        await commit(self._order.cwd, str(message))

    async def wait(self, data: Any) -> None:
        await asyncio.sleep(float(data["seconds"] if isinstance(data, Mapping) else data))

    async def usage(self, data: Any) -> None:
        classes = ("input", "output", "cache_read", "cache_write")
        self._tokens += Tokens(**{name: int(data.get(name, 0)) for name in classes})
        if "cost_usd" in data:
            self._cost = (self._cost or 0.0) + float(data["cost_usd"])
        self._turns += int(data.get("turns", 1))
        self._on_event(Usage(self._tokens, self._cost, self._turns))

    async def ask(self, data: Any) -> Finished:
        question = {"text": data} if isinstance(data, str) else {**data, "text": data.get("question", data.get("text"))}
        question.pop("question", None)
        await self.result({"status": "needs_human", "summary": "", "question": question})
        return Finished(ok=True, text=str(question["text"]))

    async def result(self, data: Any) -> None:
        document = check_result({"status": "success", **data})
        try:
            write_json(self._order.result_path, document, durable=False)
        except FileNotFoundError:
            self._order.result_path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._order.result_path, document, durable=False)

    async def fail(self, data: Any) -> Finished:
        return Finished(ok=False, error=data if isinstance(data, str) else "the script says so")

    async def crash(self, data: Any) -> None:
        raise AgentCrashed(data if isinstance(data, str) else "the script says so")

    async def rate_limit(self, data: Any) -> Finished:
        seconds = float(data["seconds"] if isinstance(data, Mapping) else data)
        self._on_event(RateLimit("rejected", self._clock() + seconds, "scripted"))
        return Finished(ok=False, error="rate limit")

    def _filled(self, data: Any) -> Any:
        if isinstance(data, str):
            return _FIELD.sub(self._field, data)
        if isinstance(data, Mapping):
            return {key: self._filled(value) for key, value in data.items()}
        return [self._filled(item) for item in data] if isinstance(data, list) else data

    def _field(self, match: re.Match[str]) -> str:
        for start in (self._task, self._task.get("payload"), self._order.labels):
            value: Any = start
            for name in match[1].split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            if isinstance(value, str | int | float):
                return str(value)
        return match[0]


_ACTIONS: Final[dict[str, Callable[[_ScriptRun, Any], Any]]] = {
    "say": _ScriptRun.say,
    "tool": _ScriptRun.tool,
    "write": _ScriptRun.write,
    "commit": _ScriptRun.commit,
    "wait": _ScriptRun.wait,
    "usage": _ScriptRun.usage,
    "ask": _ScriptRun.ask,
    "result": _ScriptRun.result,
    "fail": _ScriptRun.fail,
    "crash": _ScriptRun.crash,
    "rate_limit": _ScriptRun.rate_limit,
}


def choose_steps(script: Any, labels: Mapping[str, str], *, resume: bool) -> Sequence[Any]:
    """Return the steps of a script for a run with these labels. Raises :class:`InvalidScript`."""
    if isinstance(script, str | Path):
        script = _load(Path(script))
    if isinstance(script, Mapping) and not {"steps", "on_resume"} & script.keys():
        script = _by_label(script, labels)
    if isinstance(script, Mapping):
        script = script.get("on_resume", script.get("steps")) if resume else script.get("steps")
    if not isinstance(script, Sequence) or isinstance(script, str):
        raise InvalidScript(
            f"the script must be a list of steps, not {script!r:.80}: see kingdom.agents.engines.scripted"
        )
    return script


def _by_label(scripts: Mapping[str, Any], labels: Mapping[str, str]) -> Any:
    first = [labels[name] for name in ("task_type", "type", "event_type") if name in labels]
    for value in [*first, *labels.values()]:
        for pattern, script in scripts.items():
            if pattern != "default" and fnmatchcase(value, str(pattern)):
                return script
    if "default" in scripts:
        return scripts["default"]
    raise InvalidScript(f"no script for {dict(labels)!r:.200} and no default: there are {', '.join(map(str, scripts))}")


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidScript(f"the script {path} cannot be read: {error}") from None


def _split(step: Any, number: int) -> tuple[str, Any]:
    if isinstance(step, str):
        return step, None
    if not isinstance(step, Mapping) or len(step) != 1:
        raise InvalidScript(f"step {number}: a step is a mapping with one key, not {step!r:.80}")
    (word, data), *_ = step.items()
    return str(word), data
