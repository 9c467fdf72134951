"""``kingdom docs``: which copy of the documentation it serves, and what it says where there is none."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from kingdom.cli import app
from kingdom.cli import docs as module


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package, in what may become a checkout."""
    folder = tmp_path / "src" / "kingdom"
    folder.mkdir(parents=True)
    monkeypatch.setattr(module, "_PACKAGE", folder)
    return folder


def page(folder: Path, text: str = "hello") -> Path:
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(text)
    return folder


def test_the_copy_in_the_package_comes_first(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").touch()
    built = page(tmp_path / "artifacts" / "docs")
    assert app.run(["docs", "--path"]) == 0
    assert capsys.readouterr().out == f"{built}\n"
    packaged = page(package / "web" / "site")
    assert app.run(["docs", "--path"]) == 0
    assert capsys.readouterr().out == f"{packaged}\n"


def test_where_there_is_no_copy_it_says_how_to_get_one(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["docs"]) == 1
    assert "a release has one, or run `make docs` in a checkout" in capsys.readouterr().err
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").touch()
    assert app.run(["docs"]) == 1
    assert f"run `make docs` in {tmp_path}" in capsys.readouterr().err


def test_pages_are_served_on_loopback_and_folders_are_not_listed(tmp_path: Path) -> None:
    site = page(tmp_path / "site", "hello")
    (site / "reference").mkdir()
    (tmp_path / "secret").write_text("no")
    with module.listening(site, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", trust_env=False) as client:
            assert client.get("/index.html").text == "hello"
            assert client.get("/reference/").status_code == 404
            assert client.get("/%2e%2e/secret").status_code == 404
            assert client.post("/index.html").status_code == 501
        server.shutdown()
        thread.join()


def test_a_port_that_is_taken_is_one_line(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = page(package / "web" / "site")
    with module.listening(site, 0) as server:
        assert app.run(["docs", "--no-open", "--port", str(server.server_port)]) == 1
    assert f"cannot listen on 127.0.0.1:{server.server_port}" in capsys.readouterr().err
