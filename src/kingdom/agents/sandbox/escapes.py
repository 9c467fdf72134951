"""Attempts to get out of the sandbox, made from inside it.

``python escapes.py BAIT.json`` makes every attempt and prints a line of JSON for each. The bait is outside: files with
a secret, a process, sockets. ``kingdom doctor`` and the tests run it; nothing but the bait is touched. Standard library
only: it runs inside, where this package may not be visible.
"""
# ruff: noqa: PTH103, PTH104, PTH109, PTH110, PTH112, PTH118, PTH123, PTH207, PTH208, PTH211, S104, S603, S607

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable
from typing import Any, Final

ATTEMPTS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {}
"""Each returns something true when it got out, and false or an OSError when it was stopped."""
_SECONDS: Final = 3
_MS_BIND: Final = 4096
_NEW_USER: Final = 0x10000000
_PTRACE_ATTACH: Final = 16


def attempt(call: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Add an attempt under the name of its function."""
    ATTEMPTS[call.__name__] = call
    return call


def _has_secret(path: str, bait: dict[str, Any]) -> bool:
    with open(path, "rb") as file:
        return bait["secret"].encode() in file.read()


def _connects(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(_SECONDS)
        client.connect(address)
    return True


def _run(*argv: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, capture_output=True, timeout=30, check=False, **options)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


ATTEMPTS["read_a_secret_file"] = lambda bait: _has_secret(bait["file"], bait)
ATTEMPTS["read_it_through_the_root_of_process_1"] = lambda bait: _has_secret("/proc/1/root" + bait["file"], bait)


@attempt
def read_it_through_a_link_in_the_worktree(bait: dict[str, Any]) -> bool:
    with contextlib.suppress(FileExistsError):
        os.symlink(bait["file"], "link-to-secret")
    return _has_secret("link-to-secret", bait)


ATTEMPTS["read_it_through_the_folder_above"] = lambda bait: _has_secret(os.path.relpath(bait["file"]), bait)


@attempt
def read_it_with_git_commit(bait: dict[str, Any]) -> bool:
    _run("git", "init", "-q", "/tmp/own")  # noqa: S108
    done = _run("git", "-C", "/tmp/own", "commit", "--allow-empty", "-F", bait["file"])  # noqa: S108
    return done.returncode == 0 or bait["secret"].encode() in done.stdout + done.stderr


@attempt
def read_it_with_git_pathspecs(bait: dict[str, Any]) -> bool:
    done = _run("git", "add", f"--pathspec-from-file={bait['file']}")
    return bait["secret"].encode() in done.stdout + done.stderr


ATTEMPTS["list_its_folder"] = lambda bait: os.path.basename(bait["file"]) in os.listdir(os.path.dirname(bait["file"]))  # noqa: PTH119, PTH120


@attempt
def read_the_users_keys(bait: dict[str, Any]) -> list[str]:
    wanted = (".ssh/*", ".gnupg/*", ".netrc", ".gitconfig", ".git-credentials", ".aws/*", ".config/gh/*", ".npmrc")
    return [found for name in wanted for found in glob.glob(os.path.join(bait["home"], name))]


ATTEMPTS["read_passwords"] = lambda bait: os.read(os.open("/etc/shadow", os.O_RDONLY), 1)
ATTEMPTS["see_other_folders"] = lambda bait: [
    path for path in bait["hidden"] if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path))
]
ATTEMPTS["see_processes_outside"] = lambda bait: os.path.exists(f"/proc/{bait['pid']}/stat") and _is_bait(bait)


@attempt
def read_the_environment_of_others(bait: dict[str, Any]) -> bool:
    found = b""
    for path in glob.glob("/proc/*/environ"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            found += file.read()
    return bait["secret"].encode() in found


def _is_bait(bait: dict[str, Any]) -> bool:
    with open(f"/proc/{bait['pid']}/cmdline", "rb") as file:
        return bait["mark"].encode() in file.read()


ATTEMPTS["read_the_memory_of_the_machine"] = lambda bait: any(
    os.access(name, os.R_OK) for name in ("/dev/mem", "/dev/kmem", "/proc/kcore", "/dev/port")
)


@attempt
def read_kernel_messages(bait: dict[str, Any]) -> bool:
    with open("/dev/kmsg", "rb", buffering=0) as file:
        return bool(file.read(1))


ATTEMPTS["open_a_disk"] = lambda bait: [
    name for name in glob.glob("/dev/[svx]d[a-z]*") + glob.glob("/dev/nvme*") + glob.glob("/dev/loop*") if name
]


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


@attempt
def write_to_the_system(bait: dict[str, Any]) -> list[str]:
    made = []
    for folder in ("/usr", "/usr/bin", "/usr/local/bin", "/etc", "/opt", "/", "/lib"):
        with contextlib.suppress(OSError):
            path = os.path.join(folder, "kingdom-escape")
            open(path, "w").close()
            made.append(path)
    return made


@attempt
def write_outside(bait: dict[str, Any]) -> bool:
    with open(os.path.join(bait["folder"], "escaped"), "w") as file:
        file.write("x")
    return False  # whether it is really there is checked outside


@attempt
def write_outside_through_a_link(bait: dict[str, Any]) -> bool:
    with contextlib.suppress(FileExistsError):
        os.symlink(bait["folder"], "link-to-folder")
    with open("link-to-folder/escaped", "w") as file:
        file.write("x")
    return False


@attempt
def make_a_hard_link_to_a_secret(bait: dict[str, Any]) -> bool:
    os.link(bait["file"], "hard-link")
    return _has_secret("hard-link", bait)


@attempt
def move_the_worktree_away(bait: dict[str, Any]) -> bool:
    os.rename(os.getcwd(), os.getcwd() + "-moved")
    return True


@attempt
def change_the_owner_of_a_file(bait: dict[str, Any]) -> bool:
    open("owned", "w").close()
    os.chown("owned", 12345, 12345)
    return True


@attempt
def make_a_device(bait: dict[str, Any]) -> bool:
    os.mknod("device", 0o600 | 0o020000, os.makedev(1, 1))
    return True


@attempt
def make_a_program_with_rights_of_root(bait: dict[str, Any]) -> bool:
    with open("/proc/self/mountinfo") as file:
        return all("nosuid" not in line for line in file if " / /usr " in line or line.split()[4] == os.getcwd())


# ── mounts, namespaces, capabilities ──────────────────────────────────────────────────────────────────────────────


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@attempt
def mount_a_folder(bait: dict[str, Any]) -> bool:
    os.makedirs("mounted", exist_ok=True)
    return bool(_libc().mount(b"/", b"mounted", None, _MS_BIND, None) == 0)


ATTEMPTS["unmount_the_view"] = lambda bait: any(
    _libc().umount2(name, 2) == 0 for name in (b"/tmp", b"/run", b"/usr", os.getcwd().encode())
)
ATTEMPTS["remount_the_system_writable"] = lambda bait: bool(
    _libc().mount(None, b"/usr", None, 32 | _MS_BIND, None) == 0
)


@attempt
def change_the_root(bait: dict[str, Any]) -> bool:
    os.chroot("/tmp")  # noqa: S108
    return True


@attempt
def make_a_user_namespace(bait: dict[str, Any]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if _libc().unshare(_NEW_USER) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


@attempt
def join_the_namespaces_of_another_process(bait: dict[str, Any]) -> bool:
    handle = os.open(f"/proc/{bait['pid']}/ns/mnt", os.O_RDONLY)
    return bool(_libc().setns(handle, 0) == 0)


@attempt
def have_capabilities(bait: dict[str, Any]) -> str:
    with open("/proc/self/status") as file:
        sets = dict(line.split(":", 1) for line in file if line.startswith("Cap"))
    return "" if all(int(value, 16) == 0 for value in sets.values()) else str(sets)


@attempt
def become_another_user(bait: dict[str, Any]) -> bool:
    os.setgid(65534)
    os.setuid(65534)
    return True


@attempt
def gain_rights_through_a_program(bait: dict[str, Any]) -> bool:
    with open("/proc/self/status") as file:
        return "NoNewPrivs:\t1" not in file.read()


@attempt
def raise_a_limit(bait: dict[str, Any]) -> bool:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 1, most + 1))
    return True


ATTEMPTS["load_a_kernel_module"] = lambda bait: bool(_libc().syscall(313, 0, b"", 0) == 0)


@attempt
def change_a_setting_of_the_kernel(bait: dict[str, Any]) -> bool:
    with open("/proc/sys/kernel/core_pattern") as file:
        text = file.read()
    with open("/proc/sys/kernel/core_pattern", "w") as file:
        file.write(text)  # what it was: the attempt counts, not the damage
    return True


@attempt
def restart_the_machine(bait: dict[str, Any]) -> bool:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))  # nothing is written
    return True


@attempt
def write_any_file_of_proc(bait: dict[str, Any]) -> list[str]:
    own = ("/proc/self", "/proc/thread-self", *glob.glob("/proc/[0-9]*"), "/proc/net", "/proc/mounts")
    found = []
    for folder, folders, files in os.walk("/proc"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in own]
        for name in files:
            with contextlib.suppress(OSError):
                os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK))
                found.append(os.path.join(folder, name))
    return found


@attempt
def set_the_clock(bait: dict[str, Any]) -> bool:
    import time

    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return True


@attempt
def change_the_name_of_the_machine(bait: dict[str, Any]) -> bool:
    socket.sethostname("escaped")
    return True


ATTEMPTS["change_cgroups"] = lambda bait: any(os.access(path, os.W_OK) for path in glob.glob("/sys/fs/cgroup/*"))


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


@attempt
def kill_a_process_outside(bait: dict[str, Any]) -> bool:
    os.kill(bait["pid"], signal.SIGKILL)
    return _is_bait(bait)


@attempt
def kill_everything(bait: dict[str, Any]) -> bool:
    child = os.fork()
    if child == 0:
        os.setsid()
        with contextlib.suppress(OSError):
            os.kill(os.getppid() - os.getppid() + bait["pid"], 0)
            os._exit(0 if _is_bait(bait) else 1)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


ATTEMPTS["trace_a_process_outside"] = lambda bait: bool(
    _libc().ptrace(_PTRACE_ATTACH, bait["pid"], 0, 0) == 0 and _is_bait(bait)
)


@attempt
def take_a_file_from_a_process_outside(bait: dict[str, Any]) -> bool:
    handle = os.pidfd_open(bait["pid"])
    return bool(_libc().syscall(438, handle, 1, 0) >= 0 and _is_bait(bait))


@attempt
def type_into_the_terminal(bait: dict[str, Any]) -> bool:
    handle = os.open("/dev/tty", os.O_RDWR)
    fcntl.ioctl(handle, termios.TIOCSTI, b"x")
    return True


ATTEMPTS["see_shared_memory"] = lambda bait: os.listdir("/dev/shm")  # noqa: S108


@attempt
def outlive_the_run(bait: dict[str, Any]) -> bool:
    """Leave a process that would touch a file later. Whether it does is checked outside."""
    script = f"trap '' INT TERM HUP; while :; do sleep 0.2; echo x >> {bait['folder']}/outlived; done"
    subprocess.Popen(["setsid", "env", "-i", "/bin/sh", "-c", script])
    return False


# ── the network ───────────────────────────────────────────────────────────────────────────────────────────────────


ATTEMPTS["connect_to_a_service_of_this_machine"] = lambda bait: _connects(socket.AF_INET, ("127.0.0.1", bait["port"]))
ATTEMPTS["connect_to_it_by_ipv6"] = lambda bait: _connects(socket.AF_INET6, ("::1", bait["port"]))
ATTEMPTS["connect_to_it_by_any_address"] = lambda bait: _connects(socket.AF_INET, ("0.0.0.0", bait["port"]))
ATTEMPTS["connect_to_the_metadata_service"] = lambda bait: _connects(socket.AF_INET, ("169.254.169.254", 80))


@attempt
def ask_a_name_server(bait: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(_SECONDS)
        client.connect(("192.0.2.53", 53))
        client.send(b"\0\1\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1")
        return bool(client.recv(512))


ATTEMPTS["connect_to_a_unix_socket"] = lambda bait: _connects(socket.AF_UNIX, bait["unix"])
ATTEMPTS["connect_to_an_abstract_socket"] = lambda bait: _connects(socket.AF_UNIX, "\0" + bait["abstract"])


@attempt
def connect_to_docker_or_dbus(bait: dict[str, Any]) -> list[str]:
    wanted = ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/user", "/tmp/.X11-unix")  # noqa: S108
    return [path for path in wanted if os.path.exists(path)]


@attempt
def listen_to_packets(bait: dict[str, Any]) -> bool:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768).close()
    return True


@attempt
def send_a_ping(bait: dict[str, Any]) -> bool:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return True


@attempt
def add_an_interface(bait: dict[str, Any]) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0))  # SIOCSIFFLAGS
    return True


ATTEMPTS["have_another_interface"] = lambda bait: [name for _, name in socket.if_nameindex() if name != "lo"]


@attempt
def fetch_through_the_proxy(bait: dict[str, Any]) -> bool:
    proxies = urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"})
    opener = urllib.request.build_opener(proxies)
    return bool(opener.open(f"http://127.0.0.1:{bait['port']}/", timeout=_SECONDS).status == 200)


def main(bait: dict[str, Any], say: Callable[[str], Any] = print) -> None:
    """Make every attempt in a process of its own, and report each."""
    for name, call in ATTEMPTS.items():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                answer = {"escaped": bool(found := call(bait)), "detail": str(found)[:200]}
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                answer = {"escaped": False, "detail": str(error)[:200]}
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as file:
            said = file.read() or b'{"escaped": false, "detail": "it was ended"}'
        say(json.dumps({"attempt": name, **json.loads(said)}))


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        main(json.load(file), lambda line: print(line, flush=True))  # noqa: T201
