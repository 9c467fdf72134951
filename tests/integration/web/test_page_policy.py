"""The Content-Security-Policy of the dashboard: only scripts of this very answer, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.web import served


async def test_each_page_lets_only_its_own_scripts_run_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with served(tmp_path, pages=True, court=False) as web:
        assert (await web.client.get("/")).headers["Location"] == "/workflows"
        pages = [await web.client.get("/workflows") for _ in range(2)]
        nonces = []
        for page in pages:
            assert page.status_code == 200
            policy = page.headers["Content-Security-Policy"]
            (nonce,) = re.findall(r"'nonce-([A-Za-z0-9_-]{16,})'", policy)
            scripts = re.findall(r"<script[^>]*>", page.text)
            assert len(scripts) > 3
            assert all(f'nonce="{nonce}"' in script for script in scripts)
            assert "script-src-attr 'none'" in policy
            assert "'unsafe-inline'" not in re.search(r"script-src [^;]*", policy)[0]  # type: ignore[index]
            assert not re.search(r"https?:|\*|ws:", policy)
            loaded = re.findall(r"""(?:src|href)=["']([^"']+)|url\(["']?([^"')]+)""", page.text)
            assert [one for one in loaded if "//" in "".join(one)] == []
            nonces.append(nonce)
        assert len(set(nonces)) == 2
        asset = re.search(r'src="(/_nicegui/[^"]+\.js)"', pages[0].text)
        assert asset is not None
        given = await web.client.get(asset[1])
        assert given.status_code == 200
        assert "immutable" in given.headers["Cache-Control"]
        assert given.headers["X-Content-Type-Options"] == "nosniff"


async def test_what_the_toolkit_serves_needs_the_token_too(tmp_path: Path) -> None:
    async with served(tmp_path, pages=True, court=False) as web:
        web.client.headers.pop("Authorization")
        for path in ("/", "/workflows", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", "/_nicegui/x/static/a.js"):
            assert (await web.client.get(path)).status_code == 401
