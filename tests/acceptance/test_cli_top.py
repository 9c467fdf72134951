"""``kingdom top`` as a person starts it, on a terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

from tests.support.command import COMMAND, environment, kingdom
from tests.support.seen_court import SOLDIER, SeenCourt

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"


def read_until(terminal: int, wanted: bytes, seen: bytearray) -> None:
    while wanted not in seen:
        chunk = os.read(terminal, 65536)
        assert chunk, seen.decode(errors="replace")
        seen += chunk


async def test_it_fills_a_terminal_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    court = SeenCourt(tmp_path)
    await court.fill()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))
    before = termios.tcgetattr(slave)
    with subprocess.Popen(
        [*COMMAND, "top", "--home", str(tmp_path)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(TERM="xterm-256color"),
        start_new_session=True,
    ) as process:
        screen = bytearray()
        try:
            read_until(master, SOLDIER.encode(), screen)
            assert ALTERNATE in screen
            os.write(master, b"q")
            with contextlib.suppress(OSError):
                read_until(master, BACK, screen)
            assert process.wait(timeout=60) == 0, screen.decode(errors="replace")[-2000:]
        finally:
            process.kill()
        assert screen.count(BACK) == 1
        assert termios.tcgetattr(slave) == before
        os.close(slave)
        os.close(master)


def test_without_a_terminal_it_names_the_command_that_needs_none(tmp_path: Path) -> None:
    SeenCourt(tmp_path)
    done = kingdom("top", "--home", str(tmp_path))
    assert done.returncode == 1
    assert "kingdom status" in done.stderr
