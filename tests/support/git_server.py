"""A real git server over https, on loopback: ``git http-backend`` behind basic authentication.

Repositories are private unless they are made public. A token belongs to a user and opens some repositories, to read or
to write. As GitHub does, the server asks for a token first, and says "not found" of what a token may not see.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from tests.support.repositories import Remote, plain_git

_HOOK = """#!/bin/sh
while read old new ref; do
  grep -qxF "$ref" "$GIT_DIR/protected" && echo "GH006: Protected branch update failed for $ref." >&2 && exit 1
done
exit 0
"""


@dataclass(frozen=True)
class Grant:
    """What a token opens: ``owner/name`` → may it write. ``"*"`` stands for every repository."""

    user: str
    repositories: dict[str, bool] = field(default_factory=lambda: {"*": True})

    def may(self, name: str, *, write: bool) -> bool:
        found = self.repositories.get(name, self.repositories.get("*"))
        return found is not None and (found or not write)

    def sees(self, name: str) -> bool:
        return name in self.repositories or "*" in self.repositories


@dataclass(frozen=True)
class GitRequest:
    method: str
    path: str
    """With its query."""
    user: str | None
    password: str | None
    status: int = 0


class GitServer:
    """``with GitServer(folder) as server``: repositories below ``folder``, served at ``server.url``.

    ``server.authority`` is the file that clients must trust (``GIT_SSL_CAINFO``).
    """

    def __init__(self, folder: Path, *, name: str = "127.0.0.1") -> None:
        self.folder = folder
        self.name = name
        self.tokens: dict[str, Grant] = {}
        self.public: set[str] = set()
        self.redirects: dict[str, str] = {}
        """``owner/name`` → the URL that it has moved to."""
        self.redirects_ask = False
        """Whether only who has a token is told where a repository has moved to."""
        self.requests: list[GitRequest] = []
        self.handler: type[GitHandler] = GitHandler
        self.authority = folder / "authority.pem"
        self._lock = threading.Lock()
        self._port = 0

    @property
    def host(self) -> str:
        """``name:port``, as the configuration of credentials names it."""
        return f"{self.name}:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"https://{self.host}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, _make_key(self.authority))
        handler = type("Handler", (self.handler,), {"git": self})
        self._server = _QuietServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port  # one that was away is back at the same address
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def grant(self, token: str, user: str, **repositories: bool) -> None:
        """Let a token open repositories, given as ``owner__name=may_write``; without any, all of them, to write."""
        named = {name.replace("__", "/"): write for name, write in repositories.items()}
        self.tokens[token] = Grant(user, named) if named else Grant(user)

    def create(self, name: str, files: dict[str, str] | None = None, *, public: bool = False) -> Path:
        """Create the bare repository ``owner/name`` with one commit on ``main``; return its folder."""
        bare = self.folder / f"{name}.git"
        bare.parent.mkdir(parents=True, exist_ok=True)
        seed = Remote(self.folder / "seeds" / name)
        seed.commit({"README.md": f"{name}\n"} if files is None else files, "First")
        plain_git(seed.folder, "clone", "--quiet", "--bare", str(seed.folder), str(bare))
        if public:
            self.public.add(name)
        return bare

    def commit(self, name: str, files: dict[str, str], message: str = "A commit", branch: str = "main") -> str:
        """Push a commit as somebody else would, onto the branch if there is one; return it."""
        seed, bare = Remote.__new__(Remote), str(self.folder / f"{name}.git")
        seed.folder = self.folder / "seeds" / name
        if branch in self.refs(name):
            seed.git("fetch", "--quiet", bare, branch)
            seed.git("checkout", "--quiet", "--detach", "FETCH_HEAD")
        made = seed.commit(files, message)
        seed.git("push", "--quiet", bare, f"HEAD:refs/heads/{branch}")
        return made

    def protect(self, name: str, *branches: str) -> None:
        """Refuse pushes to branches, by a hook of the server."""
        bare = self.folder / f"{name}.git"
        (bare / "protected").write_text("".join(f"refs/heads/{branch}\n" for branch in branches))
        hook = bare / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_HOOK)
        hook.chmod(0o755)

    def refs(self, name: str) -> dict[str, str]:
        """The branches of a repository with their commits."""
        places = ("refs/heads", "refs/tags")
        words = ("for-each-ref", "--format=%(refname:short) %(objectname)", *places)
        found = plain_git(self.folder / f"{name}.git", *words)
        return dict(line.split(" ", 1) for line in found.splitlines())

    def passwords(self) -> set[str | None]:
        """Every password this server was sent."""
        return {request.password for request in self.requests if request.password is not None}

    def decide(self, name: str, password: str | None, *, write: bool) -> int:
        """Return the status of an answer: 200, or why there is none."""
        grant = self.tokens.get(password) if password is not None else None
        if password is not None and grant is None:
            return 401
        known = (self.folder / f"{name}.git").is_dir()
        if grant is None:
            return 200 if known and name in self.public and not write else 401
        if not known or not (grant.sees(name) or name in self.public):
            return 404
        return 200 if grant.may(name, write=write) or (name in self.public and not write) else 403

    def note(self, request: GitRequest) -> None:
        with self._lock:
            self.requests.append(request)


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust us, or goes away, is no error of the server."""


class GitHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    git: GitServer

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass

    def serve(self) -> None:
        parts = urlsplit(self.path)
        owner, _, rest = parts.path.lstrip("/").partition("/")
        repository, _, service = rest.partition("/")
        name = f"{owner}/{repository.removesuffix('.git')}"
        write = "git-receive-pack" in f"{service}?{parts.query}"
        user, password = self._credential()
        body = self.read_body()
        moved = self.git.redirects.get(name)
        if moved and (self._user_of(password) or not self.git.redirects_ask):
            status, headers, answer = 301, {"Location": f"{moved}/{service}?{parts.query}".rstrip("?")}, b""
        else:
            status, headers, answer = self.git.decide(name, password, write=write), {}, b""
        self.git.note(GitRequest(self.command, self.path, user, password, status))
        if status == 200:
            path = f"/{name}.git/{service}"
            status, headers, answer = self._backend(path, parts.query, body, self._user_of(password))
        elif status == 401:
            headers = {"WWW-Authenticate": 'Basic realm="git"'}
        elif status != 301:
            headers, answer = {"Content-Type": "text/plain"}, _SAID[status]
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(answer)

    def _user_of(self, password: str | None) -> str | None:
        grant = self.git.tokens.get(password) if password is not None else None
        return None if grant is None else grant.user

    def _credential(self) -> tuple[str | None, str | None]:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None, None
        user, _, password = base64.b64decode(value).decode().partition(":")
        return user, password

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def _backend(self, path: str, query: str, body: bytes, user: str | None) -> tuple[int, dict[str, str], bytes]:
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PROJECT_ROOT": str(self.git.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            **({"REMOTE_USER": user} if user else {}),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, timeout=60, check=False
        )
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(headers.pop("Status", "200 OK").split()[0])
        return status, headers, answer


_SAID = {403: b"Write access to repository not granted.", 404: b"Repository not found."}


def _make_key(certificate: Path) -> Path:
    """Make a certificate for loopback that is its own authority; return the file of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (scripts/system-packages)")
    key = certificate.with_suffix(".key")
    if key.exists():  # the server was away, and is trusted already
        return key
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return key


@contextlib.contextmanager
def trusted(*servers: GitServer) -> Iterator[dict[str, str]]:
    """Have git trust some servers; yields the variables for other processes."""
    bundle = servers[0].folder / "trusted.pem"
    bundle.write_text("".join(server.authority.read_text() for server in servers))
    before = os.environ.get("GIT_SSL_CAINFO")
    os.environ["GIT_SSL_CAINFO"] = str(bundle)
    try:
        yield {"GIT_SSL_CAINFO": str(bundle)}
    finally:
        if before is None:
            del os.environ["GIT_SSL_CAINFO"]
        else:
            os.environ["GIT_SSL_CAINFO"] = before
