"""A store that cannot be had is told of without the password of its URL."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kingdom.bus import BusError, connect
from kingdom.workflow.errors import StoreError
from kingdom.workflow.store import open_store


async def test_the_password_of_a_store_that_is_away_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connect.__kwdefaults__, "connect_timeout", 0.1)
    url = "postgresql://someone:s3cret@127.0.0.1:1/nowhere"
    with pytest.raises((StoreError, BusError)) as told:
        async with open_store(url, lambda: datetime.now(UTC)):
            pass
    words = "".join(str(error) for error in (told.value, told.value.__cause__, told.value.__context__))
    assert "127.0.0.1" in words
    assert "s3cret" not in words


@pytest.mark.parametrize("url", ["postgresql://someone:s3cret@host/db", "postgresql://host/db?password=s3cret"])
def test_the_store_knows_its_url_without_the_password(url: str) -> None:
    assert "s3cret" not in open_store(url, lambda: datetime.now(UTC)).shown_url
