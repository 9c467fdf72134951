"""The part that all scripted model services share: HTTP on loopback, a script, and what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.model_servers.script import Later, Refuse, Say, Stall, Turn

Event = tuple[str, dict[str, Any]]


class ModelServer:
    """Answers requests by a script, each by its next turn. ``requests`` are the bodies, in order."""

    path: str  # what is answered by the script; everything else is 404

    def __init__(self, *script: Turn | Later) -> None:
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []  # of each request, in small letters
        self.asked = threading.Event()  # set by the first request
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def events(self, turn: Turn, request: dict[str, Any], number: int) -> Iterable[Event]:
        """The server-sent events that say ``turn`` in this service's words."""
        raise NotImplementedError

    def take(self, request: dict[str, Any]) -> tuple[int, Turn | Later]:
        """Record a request and give the turn that answers it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            if not self.script:
                return number, Say("There is nothing left to do.")
            turn = self.script[0]
            if not isinstance(turn, Refuse):
                self.script.pop(0)
            self.asked.set()
            return number, turn

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path.split("?")[0] != server.path:
                    self.reply(404, {"error": {"type": "not_found_error", "message": self.path}}, {})
                    return
                request = json.loads(body)
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                number, found = server.take(request)
                turn = found() if callable(found) else found
                if isinstance(turn, Stall):
                    server._closing.wait()
                    self.close_connection = True
                elif isinstance(turn, Refuse):
                    self.reply(turn.status, dict(turn.body), dict(turn.headers))
                else:
                    self.stream(server.events(turn, request, number))

            def do_GET(self) -> None:
                self.reply(404, {"error": {"type": "not_found_error", "message": self.path}}, {})

            def do_HEAD(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def reply(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def stream(self, events: Iterable[Event]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for name, data in events:
                    self.wfile.write(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())
                self.close_connection = True

            def log_message(self, *words: Any) -> None:
                """Say nothing."""

        return Handler
