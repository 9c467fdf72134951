"""A network namespace with nothing but loopback, and listening sockets in it that are served from outside.

The shim's child enters the namespace before it executes bubblewrap, and passes the sockets back to the shim. So no
process inside has to relay, and connections wait in the sockets' queues while nobody serves them. Standard library
only and few imports: the shim imports it.
"""
# ruff: noqa: PTH123

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys

TYPE_CHECKING = False  # not the one of typing: importing that would take a fifth of the start of a shim
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

GATEWAY_PORT: Final = 3128
SOCKET_NAME: Final = "net.sock"  # in the folder of a run: where the gateway waits for the shim
_NEW_USER: Final = 0x10000000
_NEW_NET: Final = 0x40000000
_SET_FLAGS: Final = 0x8914  # SIOCSIFFLAGS
_UP_AND_RUNNING: Final = 0x41
_BACKLOG: Final = 256
_MAX_PORTS: Final = 32
_RETRY_SECONDS: Final = 0.25


def enter(ports: Sequence[int]) -> list[socket.socket]:
    """Move this process into new user and network namespaces, and return sockets that listen on loopback there.

    The process must have one thread. It keeps its user id, and has no more rights outside than before.
    """
    import ctypes  # the parent does not need it

    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_NET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no user and network namespace can be made: {os.strerror(number)}")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))
    return [socket.create_server(("127.0.0.1", port), backlog=_BACKLOG) for port in ports]


def send_sockets(channel: socket.socket, ports: Sequence[int], descriptors: Sequence[int]) -> None:
    """Send listening sockets and their ports to another process."""
    socket.send_fds(channel, [json.dumps(list(ports)).encode()], list(descriptors))


def receive_sockets(channel: socket.socket) -> dict[int, socket.socket]:
    """Receive listening sockets by port; none when the other side closed the channel."""
    data, descriptors, _, _ = socket.recv_fds(channel, 4096, _MAX_PORTS)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    ports = json.loads(data) if data else []
    return dict(zip(ports, (socket.socket(fileno=descriptor) for descriptor in descriptors), strict=True))


def open_channel(folder: str, *, listen: bool) -> socket.socket:
    """Return a unix socket that listens at, or is connected to, ``net.sock`` in a folder.

    Reached through a handle of the folder: the path of a socket may have 107 bytes, that of a home may have more.
    """
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        address = f"/proc/self/fd/{handle}/{SOCKET_NAME}"
        if listen:
            channel.bind(address)
            channel.listen()
        else:
            channel.connect(address)
    except OSError:
        channel.close()
        raise
    finally:
        os.close(handle)
    return channel


class HandOver:
    """Passes the sockets of a run to the process that serves it, and to the next one when that process is gone."""

    def __init__(self, folder: str, sockets: dict[int, socket.socket]) -> None:
        self._folder = folder
        self._sockets = sockets
        self._channel: socket.socket | None = None
        self.connect()

    @property
    def channel(self) -> socket.socket | None:
        """The connection to the gateway. It is readable when the gateway is gone."""
        return self._channel

    @property
    def retry_seconds(self) -> float | None:
        """How long to wait before the next attempt; None while connected."""
        return None if self._channel is not None else _RETRY_SECONDS

    def connect(self) -> None:
        """Try to reach a gateway, unless connected."""
        if self._channel is not None:
            return
        try:
            self._channel = open_channel(self._folder, listen=False)
            send_sockets(self._channel, list(self._sockets), [one.fileno() for one in self._sockets.values()])
        except OSError:
            self.drop()

    def drop(self) -> None:
        """Forget a gateway that is gone."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


if __name__ == "__main__":  # python namespace.py COMMAND…: execute a command with loopback only
    try:
        enter(())
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
    except OSError as error:
        sys.exit(f"{error.strerror or error}")
