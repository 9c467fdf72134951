"""Publishing inside ``transaction.atomic()`` of a real Django, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from psycopg.conninfo import conninfo_to_dict

from kingdom.bus import Envelope, Inbox, TransactionMismatch, connect, publish_sync
from kingdom.bus.transports.postgresql._connections import split_url

STREAM = "orders"

# Here, not in a fixture: whoever looks at Django's lazy objects in this process needs settings.
if not settings.configured:
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    django.setup()


def _settings(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite://")}
    dsn, options = split_url(url)
    parts = conninfo_to_dict(dsn)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": parts.get("port", ""),
        "OPTIONS": {"options": f"-c search_path={options['schema']}"},
    }


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """A bus that is set up, with Django's default connection to the same database."""

    async def set_up() -> None:
        async with connect(database_url) as bus:
            await bus.setup()

    asyncio.run(set_up())
    before = connections.settings
    connections.settings = connections.configure_settings({"default": _settings(database_url)})
    if hasattr(connections._connections, "default"):
        del connections["default"]
    yield database_url
    connection.close()
    del connections["default"]
    connections.settings = before


def pending(url: str) -> int:
    async def count() -> int:
        async with connect(url) as bus:
            depths = await bus.depth()
            return depths[STREAM].pending if STREAM in depths else 0

    return asyncio.run(count())


def placed(number: int) -> Envelope:
    return Envelope(type="OrderPlaced", payload={"order": number}, attributes={"note": "100 % :sure"})


def test_events_commit_with_the_transaction(url: str) -> None:
    with transaction.atomic():
        ids = publish_sync(STREAM, placed(1), tx=connection)
        assert len(ids) == 1
        assert len(publish_sync(STREAM, [placed(2), placed(3)], tx=connections["default"])) == 2
        assert pending(url) == 0
    assert pending(url) == 3


def test_a_rollback_leaves_nothing(url: str) -> None:
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        publish_sync(STREAM, placed(1), tx=connection)
        raise ZeroDivisionError
    assert pending(url) == 0


def test_a_savepoint_takes_its_own_events_along(url: str) -> None:
    with transaction.atomic():
        publish_sync(STREAM, placed(1), tx=connection)
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            publish_sync(STREAM, placed(2), tx=connection)
            raise ZeroDivisionError
    assert pending(url) == 1


def test_the_inbox_marks_in_the_same_transaction(url: str) -> None:
    inbox, event = Inbox("mailer"), placed(1)
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        assert inbox.first_sync(event, tx=connection)
        raise ZeroDivisionError
    with transaction.atomic():
        assert inbox.first_sync(event, tx=connection)
        assert not inbox.first_sync(event, tx=connection)


def test_outside_a_transaction_it_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(TransactionMismatch, match=r"begin one first \(with transaction\.atomic\(\)\)"):
        publish_sync(STREAM, placed(1), tx=connection)
    assert pending(url) == 0


def test_another_object_of_django_is_refused_with_what_to_pass(url: str) -> None:
    with pytest.raises(TransactionMismatch, match=r"pass django\.db\.connection"), transaction.atomic():
        publish_sync(STREAM, placed(1), tx=transaction.atomic())
