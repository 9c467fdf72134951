from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from kingdom.bus import EventBus, InvalidOption, UnknownTransport, connect
from kingdom.bus.transport import TransportOptions
from kingdom.bus.urls import redact_url, url_path


@pytest.mark.parametrize("url", ["", "bus.db", "/var/bus", "://", "1sqlite:///x", None, 7])
def test_what_is_no_url_is_refused_with_examples(url: Any) -> None:
    with pytest.raises(UnknownTransport) as refused:
        connect(url)
    assert f"{url!r} is not a URL; use files:///dir, sqlite:///file.db, postgresql://…, kafka://… or memory:" in str(
        refused.value
    )


@pytest.mark.parametrize("scheme", ["mysql", "redis", "http", "post+gres", "a.b", "base"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(scheme: str) -> None:
    with pytest.raises(UnknownTransport, match="unknown transport") as refused:
        connect(f"{scheme}://host/db")
    assert "use files:///dir, sqlite:///file.db, postgresql://…, kafka://… or memory:" in str(refused.value)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(UnknownTransport) as refused:
        connect("mysql://me:secret@host/db?password=hidden&x=1")
    assert "secret" not in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert "host/db" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://…@host:5432/db"),
        ("postgresql://host/db?user=me&password=secret&schema=s", "postgresql://host/db?user=me&password=…&schema=s"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("files:///var/bus", "files:///var/bus"),
        ("sqlite:bus.db", "sqlite:bus.db"),
        ("sqlite:///srv/a@b.db", "sqlite:///srv/…@b.db"),
        ("postgresql://me:s/ec@ret@host/db", "postgresql://…@host/db"),
        ("me:secret@host/db", "…@host/db"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize("password", ["s3@cret", "s3/cret", "5/cret", "s3?cret", "s3#cret", "s3[cret", "s3]cret"])
def test_a_password_that_is_not_quoted_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(InvalidOption, match="in a password write @ as %40") as refused:
        connect(f"postgresql://shop:{password}@db.example:5432/shop")
    assert "cret" not in str(refused.value)
    assert "db.example:5432/shop" in str(refused.value)


@pytest.mark.parametrize("place", ["db:54a32", "db:99999", "db:5432,other:x", "::1:5432"])
def test_a_port_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InvalidOption, match=f"'postgresql://{place}/shop': its host and port cannot be read"):
        connect(f"postgresql://{place}/shop")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:s3%40%2Fcret@db:5432,db2:5432/shop?sslmode=require",
        "postgresql://me@[::1]:5432/shop",
        "postgresql:///shop?host=/run/postgresql&user=shop@server",
        "postgresql://%2Frun%2Fpostgresql/shop",
        "postgresql://",
    ],
)
def test_other_forms_of_a_url_are_taken(url: str) -> None:
    assert connect(url).url == url


async def test_an_option_that_the_driver_refuses_is_named_at_once() -> None:
    bus = connect("postgresql://127.0.0.1:1/shop?sslmode=always", connect_timeout=600)
    with pytest.raises(InvalidOption, match=r"127\.0\.0\.1:1/shop: `sslmode` parameter must be one of"):
        await bus.open()


def test_a_limit_too_small_for_any_envelope_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"connect\(max_bytes=100\): must be 1024 or more"):
        connect("memory:", max_bytes=100)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("files:///var/bus", "/var/bus"),
        ("files:////var/bus", "/var/bus"),
        ("file:///var/bus?x=1", "/var/bus"),
        ("files://localhost/var/bus", "/var/bus"),
        ("files:queue", "queue"),
        ("sqlite:data/bus.db", "data/bus.db"),
        ("sqlite://./bus.db", "./bus.db"),
    ],
)
def test_the_path_of_a_url(url: str, path: str) -> None:
    assert url_path(url) == path


@pytest.mark.parametrize("url", ["files://queue", "sqlite://bus.db", "files://var/bus"])
def test_a_path_with_two_slashes_is_refused_and_the_right_form_told(url: str) -> None:
    with pytest.raises(InvalidOption, match="a path starts after three slashes"):
        url_path(url)


@pytest.mark.parametrize("url", ["files:", "files://", "files:///", "sqlite:?x=1"])
def test_a_url_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match=r"names no path: write (files|sqlite):///absolute/path"):
        url_path(url)


def test_the_bus_knows_its_url_and_its_transport_gets_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, TransportOptions]] = []
    module = ModuleType("kingdom.bus.transports.fake")
    module.open = lambda url, options: seen.append((url, options))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kingdom.bus.transports.fake", module)
    bus = connect("FAKE://host/x?schema=s&empty=", max_bytes=2048, clock=lambda: 7.0, connect_timeout=3)
    assert isinstance(bus, EventBus)
    assert bus.url == "FAKE://host/x?schema=s&empty="
    [(url, options)] = seen
    assert url == bus.url
    assert (options.max_bytes, options.connect_timeout, options.query) == (2048, 3, {"schema": "s", "empty": ""})
    assert options.clock is not None
    assert options.clock() == 7.0


@pytest.mark.parametrize(("alias", "scheme"), [("postgres", "postgresql"), ("file", "files")])
def test_common_spellings_are_understood(alias: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(f"kingdom.bus.transports.{scheme}")
    module.open = lambda url, options: scheme  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, f"kingdom.bus.transports.{scheme}", module)
    assert connect(f"{alias}://localhost/x").transport == scheme  # type: ignore[comparison-overlap]


def test_a_transport_of_another_distribution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("carrier_pigeon")
    module.open = lambda url, options: "a pigeon"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "carrier_pigeon", module)
    entry = EntryPoint("pigeon", "carrier_pigeon:open", "kingdom.bus.transports")
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group, name: [entry] if (group, name) == ("kingdom.bus.transports", "pigeon") else [],
    )
    assert connect("pigeon://loft").transport == "a pigeon"  # type: ignore[comparison-overlap]


def test_a_transport_that_lacks_a_driver_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_driver(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

    monkeypatch.setattr("importlib.import_module", without_a_driver)
    with pytest.raises(UnknownTransport, match=r"the package asyncpg.*pip install .*\[postgres\]'"):
        connect("postgresql://host/db")
