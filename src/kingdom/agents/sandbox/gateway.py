"""The way out of a confined run: a proxy to the hosts it may reach, and its model's API.

It runs in the daemon, outside all sandboxes. The shim passes the listening sockets of the run's network namespace to
it (``net.sock`` in the folder of the run). The real key of the model is added here; the agent has a key that only this
gateway accepts, only for its run and only while it lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import aiohttp

from kingdom.agents.port import Tokens
from kingdom.agents.sandbox.egress import HostRules, OuterProxy, Refused, connect, server_name
from kingdom.agents.sandbox.meter import CapReached, Meter, UsageReader
from kingdom.agents.sandbox.namespace import GATEWAY_PORT, SOCKET_NAME, open_channel, receive_sockets
from kingdom.base.files import read_json

if TYPE_CHECKING:
    from kingdom.agents.engine import Confinement, ModelAccess
    from kingdom.agents.folder import RunFolder
    from kingdom.agents.port import Order

OnRefusal = Callable[["Order", str], None]
"""Called with the order of a run and what it was refused."""

log = logging.getLogger("kingdom.agents")
_CONNECT_SECONDS: Final = 20.0
_HELLO_SECONDS: Final = 20.0
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_MAX_REFUSALS: Final = 100  # that are reported for a run: an agent must not fill the journal
_MODEL_PREFIX: Final = "/model"
_ASKING: Final = ("/messages", "/responses", "/chat/completions")  # paths whose answers cost tokens
# Headers of one connection, and those that we set ourselves.
_OWN_HEADERS: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "trailer", "upgrade"),
        *("transfer-encoding", "content-length", "host", "expect", "x-api-key", "authorization", "api-key"),
        "accept-encoding",  # the answer is read here too
    )
)


class Gateway:
    """Serves the confined runs of one event loop."""

    def __init__(self, environ: Mapping[str, str], on_refusal: OnRefusal | None = None) -> None:
        self._environ = environ
        self._on_refusal = on_refusal
        self._runs: dict[str, RunGateway] = {}
        self._session: aiohttp.ClientSession | None = None

    def open_run(self, folder: RunFolder, order: Order, confinement: Confinement) -> str:
        """Prepare the way out of a new run. Returns the key for its environment."""
        key = f"kingdom-run-{secrets.token_urlsafe(24)}"
        self._open(folder, order, confinement, _digest(key))
        folder.write(folder.network, {"key": _digest(key), "ports": self.ports(order.run_id)})
        return key

    def reopen_run(self, folder: RunFolder, order: Order, confinement: Confinement) -> None:
        """Serve a run again that an earlier process started."""
        if order.run_id not in self._runs:
            document = read_json(folder.network)
            self._open(folder, order, confinement, str((document or {}).get("key")))

    def ports(self, run_id: str) -> list[int]:
        """Return the ports on which the run's namespace listens."""
        return self._runs[run_id].ports

    def close_run(self, run_id: str) -> None:
        """Stop to serve a run. Its key is worthless from now on. Safe to call twice."""
        if (run := self._runs.pop(run_id, None)) is not None:
            run.close()

    async def close(self) -> None:
        """Stop to serve all runs; their connections wait until another process serves them. Safe to call twice."""
        for run_id in list(self._runs):
            self.close_run(run_id)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def outer_proxy(self, scheme: Literal["http", "https"], host: str) -> OuterProxy | None:
        """Return the proxy by which this machine reaches a host; None if it does so itself."""
        return OuterProxy.find(self._environ, scheme, host)

    def session(self) -> aiohttp.ClientSession:
        """Return the client for models, made when it is first needed."""
        if self._session is None:
            proxied = any(name in self._environ for name in ("HTTPS_PROXY", "https_proxy"))
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                trust_env=proxied,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                connector=aiohttp.TCPConnector(limit=0),
            )
        return self._session

    def _open(self, folder: RunFolder, order: Order, confinement: Confinement, digest: str) -> None:
        rules = HostRules((*confinement.hosts, *order.network))
        self._runs[order.run_id] = RunGateway(self, folder, order, rules, confinement.model, digest, self._on_refusal)


class RunGateway:
    """The way out of one run."""

    def __init__(
        self,
        gateway: Gateway,
        folder: RunFolder,
        order: Order,
        rules: HostRules,
        model: ModelAccess | None,
        digest: str,
        on_refusal: OnRefusal | None,
    ) -> None:
        self.ports = [GATEWAY_PORT, *rules.local_ports]
        self.sent: Counter[str] = Counter()  # bytes by host, both ways
        self._gateway = gateway
        self._folder = folder
        self._order = order
        self._rules = rules
        self._model = model
        self._digest = digest
        self._on_refusal = on_refusal
        self._refusals = 0
        self._meter = Meter(order.caps, read_json(folder.spent), lambda spent: folder.write(folder.spent, spent))
        self._tasks: set[asyncio.Task[None]] = set()
        self._shims: set[socket.socket] = set()
        (folder.path / SOCKET_NAME).unlink(missing_ok=True)
        self._channel = open_channel(str(folder.path), listen=True)
        self._channel.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel, self._accept)

    def close(self) -> None:
        """End all connections."""
        self._loop.remove_reader(self._channel)
        self._channel.close()
        with contextlib.suppress(OSError):
            (self._folder.path / SOCKET_NAME).unlink(missing_ok=True)
        for shim in list(self._shims):
            self._drop(shim)
        for task in list(self._tasks):
            task.cancel()
        if self.sent:
            used = ", ".join(f"{host}: {count} bytes" for host, count in self.sent.most_common(20))
            log.info("run %s used the network: %s", self._order.run_id, used)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            shim, _ = self._channel.accept()
            self._shims.add(shim)
            self._loop.add_reader(shim, self._receive, shim)

    def _receive(self, shim: socket.socket) -> None:
        """Take the sockets from a shim; later the channel is readable when the shim is gone."""
        try:
            sockets = receive_sockets(shim)
        except (OSError, ValueError):
            sockets = {}
        if not sockets:
            self._drop(shim)
            return
        for port, listening in sockets.items():
            listening.setblocking(False)
            self._start(self._listen(port, listening))

    def _drop(self, shim: socket.socket) -> None:
        self._loop.remove_reader(shim)
        self._shims.discard(shim)
        shim.close()

    async def _listen(self, port: int, listening: socket.socket) -> None:
        serve = self._serve if port == GATEWAY_PORT else self._forward
        with listening:
            while True:
                connection, _ = await self._loop.sock_accept(listening)
                self._start(self._handle(serve, port, connection))

    async def _handle(self, serve: Callable[[int, Any, Any], Any], port: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_HEAD_BYTES)
        try:
            await serve(port, reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError):
            pass  # the agent's connection; it sees that it is closed
        finally:
            writer.close()

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── the proxy ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection to the same port of this machine, which a rule names."""
        upstream = await asyncio.open_connection("127.0.0.1", port)
        await self._relay(f"127.0.0.1:{port}", (reader, writer), upstream)

    async def _serve(self, _: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                method, target, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
            except (asyncio.IncompleteReadError, ValueError):
                return
            try:
                if method == "CONNECT":
                    await self._tunnel(target, reader, writer)
                    return
                if target.startswith("http://"):
                    await self._plain(method, target, headers, reader, writer)
                    return
                await self._ask_model(method, target, headers, reader, writer)
            except Refused as refusal:
                self._refuse(str(refusal))
                await _answer(writer, 403, f"kingdom: {refusal}", {"connection": "close"})
                return
            except (OSError, TimeoutError, aiohttp.ClientError) as error:
                await _answer(writer, 502, f"kingdom: {error or 'no answer in time'}", {"connection": "close"})
                return

    async def _tunnel(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, number = target.rpartition(":")
        port = int(number) if number.isdecimal() else 0
        name = self._rules.check(host, port)
        upstream = await connect(name, port, _CONNECT_SECONDS, self._gateway.outer_proxy("https", name))
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.timeout(_HELLO_SECONDS):
                hello = await _first_record(reader)
            if port != 80 and (said := server_name(hello)) != name:
                raise Refused(f"a connection to {name} that is for {said or 'no server name'}")
            upstream[1].write(hello)
            self.sent[name] += len(hello)
            await self._relay(name, (reader, writer), upstream)
        finally:
            upstream[1].close()

    async def _plain(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on one request without TLS."""
        authority, slash, path = target.removeprefix("http://").partition("/")
        host, _, number = authority.rpartition("@")[2].partition(":")
        port = int(number) if number.isdecimal() else 80
        name = self._rules.check(host, port)
        body = await _read_body(headers, reader)
        proxy = self._gateway.outer_proxy("http", name)
        upstream_reader, upstream_writer = await connect(name, port, _CONNECT_SECONDS, proxy, tunnel=False)
        try:
            kept = "".join(
                f"{key}: {value}\r\n" for key, value in headers if key not in _OWN_HEADERS or key == "authorization"
            )
            kept += f"content-length: {len(body)}\r\n" if body else ""
            kept += f"proxy-authorization: {proxy.authorization}\r\n" if proxy and proxy.authorization else ""
            wanted = f"http://{name}:{port}/{path}" if proxy else f"{slash}{path}"
            head = f"{method} {wanted} HTTP/1.1\r\nhost: {authority}\r\n{kept}connection: close\r\n\r\n"
            upstream_writer.write(head.encode("latin-1") + body)
            self.sent[name] += len(head) + len(body)
            await self._pump(name, upstream_reader, writer)
        finally:
            upstream_writer.close()

    async def _relay(
        self,
        name: str,
        inner: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        outer: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Pass bytes both ways until both sides are done."""
        try:
            await asyncio.gather(self._pump(name, inner[0], outer[1]), self._pump(name, outer[0], inner[1]))
        finally:
            outer[1].close()

    async def _pump(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            self.sent[name] += len(data)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    # ── the model ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask_model(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on a request to the model with the real key, and its answer as it comes."""
        model = self._model
        path = target.removeprefix(_MODEL_PREFIX)
        if model is None or not target.startswith(f"{_MODEL_PREFIX}/") or ".." in path or "\\" in path:
            raise Refused(f"{method} {target[:100]}: there is no such service here")
        if not self._has_key(dict(headers)):
            raise Refused(f"{method} {target[:100]} with a key that is not this run's")
        body = await _read_body(headers, reader)
        try:
            reservation = self._meter.reserve(body, asks=path.partition("?")[0].endswith(_ASKING))
        except CapReached as reached:
            self._refuse(str(reached))
            document = {"type": "error", "error": {"type": "invalid_request_error", "message": f"kingdom: {reached}"}}
            await _answer(writer, 400, json.dumps(document), {"content-type": "application/json"})
            return
        sent = {key: value for key, value in headers if key not in _OWN_HEADERS}
        used: Tokens | None = None  # unless the whole answer was seen, all that was reserved counts
        try:
            async with self._gateway.session().request(
                method,
                model.url + path,
                data=reservation.body or None,
                headers={**sent, "accept-encoding": "identity", model.header: model.value},
                allow_redirects=False,
            ) as response:
                used = await self._pass_on(response, writer)
        finally:
            self._meter.settle(reservation, used)

    async def _pass_on(self, response: aiohttp.ClientResponse, writer: asyncio.StreamWriter) -> Tokens | None:
        """Write an answer as it comes. Returns what it used; None when it does not say."""
        usage = UsageReader()
        host = str(response.url.host)
        head = [f"HTTP/1.1 {response.status} {response.reason or 'OK'}"]
        head += [f"{key}: {value}" for key, value in response.headers.items() if key.lower() not in _OWN_HEADERS]
        writer.write("\r\n".join([*head, "transfer-encoding: chunked", "", ""]).encode("latin-1", "replace"))
        async for data in response.content.iter_any():
            usage.feed(data)
            self.sent[host] += len(data)
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return Tokens() if response.status >= 400 else usage.result()

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(_digest(given), self._digest)

    def _refuse(self, what: str) -> None:
        self._refusals += 1
        if self._refusals > _MAX_REFUSALS:
            return
        log.warning("run %s (task %s) was refused: %s", self._order.run_id, self._order.task_id, what)
        if self._on_refusal is not None:
            self._on_refusal(self._order, what)


def _parse_head(data: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    first, *lines = data.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = []
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name.strip().lower(), value.strip()))
    return method, target, headers


async def _read_body(headers: list[tuple[str, str]], reader: asyncio.StreamReader) -> bytes:
    found = dict(headers)
    if "chunked" in found.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    length = int(found.get("content-length") or 0)
    if not 0 <= length <= _MAX_BODY_BYTES:
        raise Refused(f"a request of {length} bytes: at most {_MAX_BODY_BYTES} are passed on")
    return await reader.readexactly(length) if length else b""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        if len(body) + size > _MAX_BODY_BYTES:
            raise Refused(f"a request of more than {_MAX_BODY_BYTES} bytes")
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return body


async def _first_record(reader: asyncio.StreamReader) -> bytes:
    """Return the first TLS record of a connection, or its first bytes if it is not TLS."""
    head = await reader.read(5)
    if head[:1] != b"\x16":
        return head
    while len(head) < 5:
        head += await reader.readexactly(5 - len(head))
    return head + await reader.readexactly(int.from_bytes(head[3:5]))


async def _answer(writer: asyncio.StreamWriter, status: int, text: str, headers: Mapping[str, str]) -> None:
    body = text.encode()
    reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
    lines = [f"{key}: {value}" for key, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} {reason}", *lines, f"content-length: {len(body)}", "", ""])
    with contextlib.suppress(OSError):
        writer.write(head.encode() + body)
        await writer.drain()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
