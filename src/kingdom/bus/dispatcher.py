"""From an event to the function that handles it.

The dispatcher knows nothing of queues: a worker on any transport, or a Kafka consumer one day, calls the same one.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidOption, Reject

if TYPE_CHECKING:
    from kingdom.bus.delivery import Delivery

Handler = Callable[[Envelope], Awaitable[object] | object]
H = TypeVar("H", bound=Callable[..., object])

ANY = "*"
current: contextvars.ContextVar[Delivery | None] = contextvars.ContextVar("kingdom_delivery", default=None)


def current_delivery() -> Delivery:
    """The delivery being handled: its attempt number, stream and worker. Works in sync handlers' threads too."""
    delivery = current.get()
    if delivery is None:
        raise LookupError("current_delivery() is for use inside a handler, and none is running here")
    return delivery


class Dispatcher:
    """Handlers by event type. ``on("*")`` takes every type that has none of its own."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[Handler, bool]] = {}

    def on(self, *types: str) -> Callable[[H], H]:
        """Register the decorated function for these event types. A plain function runs in a thread."""
        if not types or not all(isinstance(item, str) and item for item in types):
            raise InvalidOption("on() takes the event types to handle, as text: @worker.on('OrderAccepted')")

        def register(handler: H) -> H:
            for event_type in types:
                if event_type in self._handlers:
                    raise InvalidOption(f"event type {event_type!r} already has a handler here")
                self._handlers[event_type] = (handler, _is_async(handler))
            return handler

        return register

    @property
    def types(self) -> list[str] | None:
        """The event types handled, or None when every type is."""
        return None if ANY in self._handlers else list(self._handlers)

    async def dispatch(self, envelope: Envelope, executor: Executor | None = None) -> None:
        """Run the handler of this event; whatever it raises is the caller's to judge."""
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


def _is_async(handler: Callable[..., object]) -> bool:
    if inspect.iscoroutinefunction(handler):
        return True
    return inspect.iscoroutinefunction(type(handler).__call__)
