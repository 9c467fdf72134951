"""Publish in Django's own transaction: ``python -m examples.django_orders``.

``publish_sync`` takes ``django.db.connection`` and joins ``transaction.atomic()``: row and event commit together.
"""

from __future__ import annotations

import asyncio
import tempfile

import django
from django.conf import settings
from django.db import connection, transaction

from kingdom.bus import Envelope, Worker, connect, publish_sync


def place_order(item: str, paid: bool) -> None:
    """The view: one transaction for the order and the event."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop_order (item) VALUES (%s)", [item])
        publish_sync("orders", Envelope(type="OrderPlaced", payload={"item": item}), tx=connection)
        if not paid:
            raise ValueError(f"the payment for the {item} failed")


async def set_up(url: str) -> None:
    """Create the tables of the bus, as a deployment does."""
    async with connect(url) as bus:
        await bus.setup()


async def run_worker(url: str) -> None:
    """The worker process; in production a management command or a program of its own."""
    async with connect(url) as bus:
        worker = Worker(bus, "orders", name="warehouse")

        @worker.on("OrderPlaced")
        def pack(event: Envelope) -> None:
            print("packed:", event.payload["item"])
            worker.stop()

        await worker.run()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/db.sqlite3"
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}})
        django.setup()
        asyncio.run(set_up(f"sqlite://{database}"))
        connection.cursor().execute("CREATE TABLE shop_order (item TEXT)")
        place_order("lamp", paid=True)
        try:
            place_order("chair", paid=False)
        except ValueError as error:
            print("rolled back:", error)
        asyncio.run(run_worker(f"sqlite://{database}"))
