"""The connections of a court's machines to their database, and what is said when they cannot work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from kingdom.bus import InvalidOption, NotPermitted, TransportUnavailable
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.registry import Registry
from tests.support.postgres import with_schema


@pytest.fixture
async def poor_url(postgres_url: str, sql: Any) -> AsyncIterator[str]:
    """A role that may use the schema of the test, and create nothing, as PostgreSQL 15 and newer have it in public."""
    schema = await sql.fetchval("SELECT current_schema()")
    role = f"poor_{schema}"
    await sql.execute(f'CREATE ROLE "{role}" LOGIN; GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
    parts = urlsplit(postgres_url)
    place = parts.netloc.rpartition("@")[2]
    yield postgres_url.replace(f"//{parts.netloc}", f"//{role}@{place}")
    await sql.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


async def test_the_schema_of_the_url_is_created(postgres_server: str, sql: Any) -> None:
    schema = f"{await sql.fetchval('SELECT current_schema()')}_Other"
    registry = Registry(with_schema(postgres_server, schema))
    try:
        await registry.setup()
        await registry.register("seat", joined=False)
        assert await sql.fetchval(f'SELECT name FROM "{schema}".court_machine') == "seat"
    finally:
        await sql.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


async def test_a_role_that_may_create_nothing_is_told_what_it_needs(poor_url: str) -> None:
    with pytest.raises(NotPermitted, match=r"permission denied for schema .*: give its role the database") as refused:
        await Registry(poor_url).setup()
    assert "or a schema of its own and name that in the URL (?schema=NAME)" in str(refused.value)
    with pytest.raises(NotPermitted, match=r"permission denied for database .*: give its role the database"):
        await Registry(with_schema(poor_url.partition("&schema=")[0], "its_own")).setup()


async def test_a_role_without_rights_to_the_tables_of_a_court_is_told_so(postgres_url: str, poor_url: str) -> None:
    await Registry(postgres_url).setup()
    await Registry(poor_url).setup()  # there is nothing to create
    with pytest.raises(NotPermitted, match="permission denied for table court_machine: its role lacks this right"):
        await Registry(poor_url).machines()


@pytest.mark.parametrize(
    ("option", "said"),
    [("sslmode=sure", "`sslmode` parameter must be one of"), ("sslrootcert=/none&sslmode=verify-full", "/none")],
)
async def test_settings_of_a_connection_that_are_wrong_are_named(postgres_url: str, option: str, said: str) -> None:
    with pytest.raises((InvalidOption, TransportUnavailable), match=said):
        async with CourtDatabase(f"{postgres_url}&{option}").connection():
            pass


async def test_a_role_that_the_server_refuses_is_told_so(postgres_url: str, poor_url: str) -> None:
    gone = poor_url.replace("poor_", "gone_")
    with pytest.raises(TransportUnavailable, match=r"refuses the role: .*gone_.*Check user and password"):
        async with CourtDatabase(gone).connection():
            pass
