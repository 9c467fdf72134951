"""``python -m examples.trading`` runs the whole demonstration; ``worker ROLE…`` runs one of its processes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import MISSING, fields

from examples.trading.workers import ROLES, Settings, run_workers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.trading", description="Order execution on the bus.")
    parser.add_argument("--handled", default="", metavar="URL", help="handle the events from there, e.g. kafka://…")
    commands = parser.add_subparsers(dest="command")
    worker = commands.add_parser("worker", help="run workers in this process until SIGTERM")
    worker.add_argument("roles", nargs="+", choices=list(ROLES), metavar="ROLE", help=", ".join(ROLES))
    for field in fields(Settings):
        required = field.default is MISSING
        default = None if required else field.default
        kind = str if required or field.default == "" else float
        worker.add_argument(f"--{field.name.replace('_', '-')}", type=kind, required=required, default=default)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    if options.command == "worker":
        settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
        asyncio.run(run_workers(settings, options.roles))
    else:
        from examples.trading.story import run_story

        sys.exit(not asyncio.run(run_story(options.handled)))


if __name__ == "__main__":
    main()
