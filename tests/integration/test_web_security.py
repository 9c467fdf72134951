"""Who gets in, and who does not."""

from __future__ import annotations

from pathlib import Path

from tests.support.web import served, web_app


async def test_without_a_token_nothing_is_answered(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False) as web, web.without_token() as nobody:
        refused = await nobody.get("/api/openapi.json")
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "SYS_UNAUTHORIZED"
        assert (await web.client.get("/api/openapi.json")).status_code == 200


async def test_a_served_application_is_found_by_its_record(tmp_path: Path) -> None:
    async with served(tmp_path, court=False) as web:
        assert (await web.client.get("/api/openapi.json")).status_code == 200
