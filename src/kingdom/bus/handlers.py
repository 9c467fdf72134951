"""Run the handler of an event, and decide what its failure means.

Network errors, time-outs, HTTP 5xx, 408, 425 and 429 are retried. Other HTTP 4xx, validation errors and refused
permissions are not: the same event would fail the same way. Any other error is retried until no attempts are left. A
worker's ``classify=`` hook is called first and may decide otherwise.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from kingdom.base.backoff import backoff
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidOption, Reject, Retry
from kingdom.bus.options import check_count

if TYPE_CHECKING:
    from kingdom.bus.delivery import Delivery


Handler = Callable[[Envelope], Awaitable[object] | object]
H = TypeVar("H", bound=Callable[..., object])

ANY = "*"
log = logging.getLogger("kingdom.bus.worker")
current_delivery_var: contextvars.ContextVar[Delivery | None] = contextvars.ContextVar("kingdom_delivery", default=None)


def current_delivery() -> Delivery:
    """Return the delivery being handled: its attempt, stream and worker. Works in the threads of sync handlers too."""
    delivery = current_delivery_var.get()
    if delivery is None:
        raise LookupError("current_delivery() is for use inside a handler, and none is running here")
    return delivery


class Dispatcher:
    """Handlers by event type. ``on("*")`` registers one for all other types. It knows nothing about queues."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[Handler, bool]] = {}

    def on(self, *types: str) -> Callable[[H], H]:
        """Register the decorated function for these event types. A plain function runs in a thread."""
        if not types or not all(isinstance(item, str) and item for item in types):
            raise InvalidOption("on() takes the event types to handle, as text: @worker.on('OrderAccepted')")

        def register(handler: H) -> H:
            _check_handler(handler)
            for event_type in types:
                if event_type in self._handlers:
                    raise InvalidOption(f"event type {event_type!r} already has a handler here")
                self._handlers[event_type] = (handler, _is_async(handler))
            return handler

        return register

    @property
    def types(self) -> list[str] | None:
        """The event types handled, or None if all are."""
        return None if ANY in self._handlers else list(self._handlers)

    async def dispatch(self, envelope: Envelope, executor: Executor | None = None) -> None:
        """Run the handler of this event; its exception is raised to the caller."""
        found = self._handlers.get(envelope.type) or self._handlers.get(ANY)
        if found is None:
            raise Reject("NO_HANDLER", f"no handler is registered for {envelope.type!r}")
        handler, is_async = found
        if is_async:
            await handler(envelope)  # type: ignore[misc]
            return
        context = contextvars.copy_context()
        result = await asyncio.get_running_loop().run_in_executor(executor, context.run, handler, envelope)
        if inspect.isawaitable(result):
            await result


def _check_handler(handler: object) -> None:
    """Refuse what could not be called with an event, or would be called without doing anything."""
    if not callable(handler):
        raise InvalidOption(f"a handler is a function that takes the event, not {handler!r:.80}")
    name = getattr(handler, "__qualname__", None) or repr(handler)
    if _is_kind(handler, inspect.isgeneratorfunction) or _is_kind(handler, inspect.isasyncgenfunction):
        raise InvalidOption(f"handler {name} is a generator, so calling it runs nothing of it: remove the yield")
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a function written in C may have none
        return
    try:
        signature.bind(None)
    except TypeError:
        raise InvalidOption(
            f"handler {name}{signature} must take one argument, the event: current_delivery() has its attempt and "
            "stream, and a method is registered bound to its object, as worker.on('OrderAccepted')(shop.accept)"
        ) from None


def _is_async(handler: Callable[..., object]) -> bool:
    return _is_kind(handler, inspect.iscoroutinefunction)


def _is_kind(handler: Callable[..., object], kind: Callable[[object], bool]) -> bool:
    return kind(handler) or kind(type(handler).__call__)


FailureAction = Literal["retry", "dead"]
Classifier = Callable[[BaseException], "FailureAction | None"]

_RETRYABLE_4XX = frozenset({408, 425, 429})


class HandlerFailure(NamedTuple):
    """What a handler's exception means for its event."""

    fate: FailureAction
    code: str
    message: str
    after: float | None = None  # seconds, if the error itself says how long to wait


def classify_failure(error: BaseException, hook: Classifier | None = None) -> HandlerFailure:
    """Decide what a handler's exception means for its event."""
    if isinstance(error, Retry):
        return HandlerFailure("retry", error.code, str(error), error.after)
    if isinstance(error, Reject):
        return HandlerFailure("dead", error.code, error.why)
    status = http_status(error)
    code = f"HTTP_{status}" if status else type(error).__name__
    message = str(error) or type(error).__name__
    fate = _classified(error, hook) or ("dead" if is_permanent(error) else "retry")
    return HandlerFailure(fate, code, message, retry_after(error) if fate == "retry" else None)


def _classified(error: BaseException, hook: Classifier | None) -> FailureAction | None:
    """Ask the caller's function. A mistake in it must not end the worker, which would leave the event unsettled."""
    if hook is None:
        return None
    try:
        fate = hook(error)
    except Exception:
        log.exception("the function classify= failed: the event is handled as without it")
        return None
    if fate in ("retry", "dead", None):
        return fate
    log.error("the function classify= returned %r, not 'retry', 'dead' or None: handled as None", fate)
    return None


def is_permanent(error: BaseException) -> bool:
    """Return whether a retry cannot succeed."""
    status = http_status(error)
    if status is not None:
        return 400 <= status < 500 and status not in _RETRYABLE_4XX
    if isinstance(error, PermissionError):
        return True
    # Validation libraries share no base class, but they do share the name (pydantic, marshmallow, jsonschema, Django).
    return any(base.__name__ == "ValidationError" for base in type(error).__mro__)


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an exception of httpx, requests, aiohttp or urllib, if it has one."""
    response = getattr(error, "response", None)
    for holder, name in (
        (response, "status_code"),
        (response, "status"),
        (error, "status_code"),
        (error, "status"),
    ):
        value = getattr(holder, name, None)
        if isinstance(value, int) and 100 <= value < 600:
            return value
    value = getattr(error, "code", None)
    if hasattr(error, "headers") and isinstance(value, int) and 100 <= value < 600:  # urllib.error.HTTPError
        return value
    return None


def retry_after(error: BaseException) -> float | None:
    """Return the seconds of a ``Retry-After`` header, if the error has one in seconds."""
    holder = getattr(error, "response", None) or error
    headers = getattr(holder, "headers", None)
    value = headers.get("Retry-After") if headers is not None and hasattr(headers, "get") else None
    try:
        seconds = float(value) if value is not None else None
    except (TypeError, ValueError):
        return None  # a date: use the delay of the policy
    return seconds if seconds is not None and 0 <= seconds < 86_400 else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delay before attempt *n + 1*: ``base × factor^(n−1)``, at most ``cap``, give or take ``jitter``.

    The jitter (a fraction, ±20 % by default) is applied after the cap, so that events which failed together at the
    cap do not come back together. After ``max_attempts`` failed attempts the event is DEAD.
    """

    base: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.2
    max_attempts: int = 10

    def __post_init__(self) -> None:
        rules: tuple[tuple[str, Callable[[float], bool], str], ...] = (
            ("base", lambda value: value >= 0, "zero or more seconds"),
            ("factor", lambda value: value >= 1, "1 or more"),
            ("cap", lambda value: value >= 0, "zero or more seconds"),
            ("jitter", lambda value: 0 <= value < 1, "a fraction from 0 up to 1"),
        )
        for name, holds, rule in rules:
            value = getattr(self, name)
            if not isinstance(value, (int, float)):
                raise InvalidOption(f"RetryPolicy({name}={value!r}): must be a number, {rule}")
            if not holds(value):
                raise InvalidOption(f"RetryPolicy({name}={value!r}): must be {rule}")
        check_count("RetryPolicy", "max_attempts", self.max_attempts)

    def delay(self, attempt: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after failed attempt number ``attempt`` (the first is 1)."""
        return backoff(attempt - 1, self.base, self.cap, factor=self.factor, jitter=self.jitter, rng=rng)
