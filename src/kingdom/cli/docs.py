"""``kingdom docs``: the documentation, from the copy that comes with the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kingdom
from kingdom.cli import output
from kingdom.cli.parsing import command

if TYPE_CHECKING:
    from _typeshed import SupportsRead

_PACKAGE = Path(kingdom.__file__).resolve().parent
_PAGE = "index.html"


@command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1; 0 takes a free one.")
@click.option("--no-open", is_flag=True, help="Only print the address: open no browser.")
@click.option("--path", "only_path", is_flag=True, help="Print the folder of the pages, and exit.")
def docs(port: int, no_open: bool, only_path: bool) -> None:
    """Open the documentation in a browser.

    The pages come with the installed package and need no network. They are served on this machine only, until
    interrupted.
    """
    folder = find_site(_PACKAGE)
    if only_path:
        output.say(str(folder))
        return
    with listening(folder, port) as server:
        address = f"http://127.0.0.1:{server.server_port}/{_PAGE}"
        output.say(f"the documentation is at {address} (Ctrl-C stops it)")
        if not no_open:
            import webbrowser

            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def find_site(package: Path) -> Path:
    """Return the folder of the built pages: those in the package, or those that ``make docs`` built in a checkout."""
    packaged = package / "web" / "site"
    if (packaged / _PAGE).exists():
        return packaged
    checkout = package.parent.parent
    if not (checkout / "docs" / "README.md").exists():
        raise output.CommandError(
            "NO_DOCS",
            "this installation has no copy of the documentation: a release has one, or run `make docs` in a checkout",
        )
    built = checkout / "artifacts" / "docs"
    if not (built / _PAGE).exists():
        raise output.CommandError("NO_DOCS", f"the documentation is not built here: run `make docs` in {checkout}")
    return built


@contextmanager
def listening(folder: Path, port: int) -> Iterator[ThreadingHTTPServer]:
    """Listen on the loopback address, for the files of a folder."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Files, directory=str(folder)))
    except OSError as error:
        raise output.CommandError("PORT_TAKEN", f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from None
    with server:
        yield server


class _Files(SimpleHTTPRequestHandler):
    """Serves files, and neither lists folders nor logs requests."""

    def list_directory(self, path: Any) -> SupportsRead[bytes] | None:  # type: ignore[override]
        self.send_error(404)
        return None

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name in the base class
        pass
