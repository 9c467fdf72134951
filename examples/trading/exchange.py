"""A simulated exchange and push server on 127.0.0.1.

========================== ==========================================================================================
``POST /orders``           places an order under the client's ``identifier``; the same one again is the same order
``GET /orders/{id}``       the order, or 404: not known (a request may still be on its way)
``DELETE /orders/{id}``    voids an unused identifier: it is never accepted after that (410). 409 with the order when
                           it has been placed
``POST /push``             delivers a notification to the phone; a repeated ``Idempotency-Key`` is ignored
========================== ==========================================================================================

Voiding makes a second attempt safe: "not known" alone says nothing about a request that is still on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from examples.trading.faults import Fault, Script, scripted
from examples.trading.httpio import BadMessage, Request, Response, read_request, write_response

_PLACES_FIRST = frozenset({Fault.ERROR_AFTER, Fault.SILENT_AFTER, Fault.LOST_AFTER})


class Exchange:
    """Runs the server, and records its requests and effects for inspection.

    ``script`` says what to do with each order. ``late`` is how many seconds a late order takes. ``retry_after`` is
    sent to a throttled client. ``flaky`` is the chance that any other request fails with 503, before or after its
    effect; ``rng`` decides. ``on_order`` is called with every request for an order.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        late: float = 1.0,
        retry_after: int = 1,
        flaky: float = 0.0,
        rng: random.Random | None = None,
        on_order: Callable[[Request], None] | None = None,
    ) -> None:
        self.orders: dict[str, dict[str, Any]] = {}  # by identifier
        self.voided: set[str] = set()
        self.delivered: dict[str, dict[str, Any]] = {}  # pushes that reached the phone, by event id
        self.faults: Counter[Fault] = Counter()
        self.on_order = on_order
        self._script = script or scripted({})
        self._late = late
        self._retry_after = retry_after
        self._flaky = flaky
        self._rng = rng or random.Random(0)
        self._asked: Counter[str] = Counter()  # requests for orders, by the client's tag
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._hang_up = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._hang_up.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The address of the server."""
        assert self._server is not None, "start the exchange first: `async with Exchange() as exchange`"
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    # Server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(BadMessage):  # a client that died while it sent its request
                response = await self._answer(await read_request(reader))
                if response is not None:
                    await write_response(writer, response)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, request: Request) -> Response | None:
        match request.method, request.path.split("/")[1:]:
            case "POST", ["orders"]:
                return await self._order(request)
            case "GET", ["orders", identifier]:
                return self._flakily(lambda: self._find(identifier))
            case "DELETE", ["orders", identifier]:
                return self._flakily(lambda: self._void(identifier))
            case "POST", ["push"]:
                return self._flakily(lambda: self._push(request))
        return Response(404, {"error": f"no such path: {request.method} {request.path}"})

    def _flakily(self, act: Callable[[], Response]) -> Response:
        if self._rng.random() >= self._flaky:
            return act()
        if self._rng.random() < 0.5:
            act()
        return Response(503, {"error": "try again"})

    # Orders

    async def _order(self, request: Request) -> Response | None:
        body = request.body
        fault = self._script(body["tag"], self._asked[body["tag"]])
        self._asked[body["tag"]] += 1
        self.faults[fault] += 1
        if self.on_order is not None:
            self.on_order(request)
        if fault in _PLACES_FIRST:
            self._place(body)
        match fault:
            case Fault.NONE:
                return self._place(body)
            case Fault.REJECT:
                return Response(422, {"error": "insufficient_funds"})
            case Fault.THROTTLE:
                return Response(429, {"error": "too_many_requests"}, {"Retry-After": str(self._retry_after)})
            case Fault.ERROR_BEFORE:
                return Response(503, {"error": "unavailable"})
            case Fault.ERROR_AFTER:
                return Response(500, {"error": "internal"})
            case Fault.LATE:
                await self._closing(self._late)
                if not self._hang_up.is_set():
                    self._place(body)
            case Fault.SILENT_BEFORE | Fault.SILENT_AFTER:
                await self._closing(None)
        return None  # the connection closes without an answer

    async def _closing(self, within: float | None) -> None:
        """Keep the client waiting until the server closes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._hang_up.wait()

    def _place(self, body: dict[str, Any]) -> Response:
        identifier = body["identifier"]
        if identifier in self.voided:
            return Response(410, {"error": "identifier_voided"})
        if identifier in self.orders:
            return Response(200, self.orders[identifier])
        order = {"orderId": f"EX-{len(self.orders) + 1:05}", **body}
        self.orders[identifier] = order
        return Response(201, order)

    def _find(self, identifier: str) -> Response:
        order = self.orders.get(identifier)
        return Response(404, {"error": "order_not_found"}) if order is None else Response(200, order)

    def _void(self, identifier: str) -> Response:
        if identifier in self.orders:
            return Response(409, self.orders[identifier])
        self.voided.add(identifier)
        return Response(204)

    # Push notifications

    def _push(self, request: Request) -> Response:
        event_id = request.headers.get("idempotency-key")
        if not event_id:
            return Response(400, {"error": "Idempotency-Key is missing"})
        if event_id in self.delivered:
            return Response(200, {"delivered": "before"})
        self.delivered[event_id] = request.body
        return Response(201, {"delivered": "now"})
