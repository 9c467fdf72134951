"""TLS between the machines of a court and the database: what is trusted, and what a wrong set-up says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.bus import TransportUnavailable, connect
from kingdom.court.machines.registry import Registry
from tests.support.machines import eventually, first_machine, joined_machine
from tests.support.tls import Authority, tls_in_front

pytestmark = pytest.mark.postgres


def _verified(url: str, certificate: Path) -> str:
    return f"{url}{'&' if '?' in url else '?'}sslmode=verify-full&sslrootcert={certificate}"


async def test_two_machines_work_with_a_database_that_only_takes_tls(tmp_path: Path, postgres_url: str) -> None:
    authority = Authority(tmp_path, "authority")
    async with tls_in_front(postgres_url, authority.server_context("127.0.0.1")) as plain:
        url = _verified(plain, authority.certificate)
        async with first_machine(tmp_path / "seat", url) as seat:
            await Registry(url).publish_packages(seat.home)
            seat.start("king", "link")
            async with joined_machine(tmp_path / "builder", url, "builder") as builder:
                builder.start("link", "gen-quick")
                await seat.emit(1)
                (task_id,) = await eventually(seat.tasks)
                result = await eventually(lambda: seat.result(task_id))
                assert (result["status"], result["machine"]) == ("success", "builder")


@pytest.mark.parametrize(
    ("trusts", "host", "options", "reason"),
    [
        ("other", "127.0.0.1", "sslmode=verify-full", "certificate verify failed"),
        ("authority", "db.example.com", "sslmode=verify-full", "certificate verify failed"),
        ("authority", "127.0.0.1", "sslmode=disable", "no encryption"),
    ],
)
async def test_what_is_not_trusted_is_not_connected_to(
    tmp_path: Path, postgres_url: str, trusts: str, host: str, options: str, reason: str
) -> None:
    known = {name: Authority(tmp_path, name) for name in ("authority", "other")}
    async with tls_in_front(postgres_url, known["authority"].server_context(host)) as plain:
        url = f"{plain}&{options}&sslrootcert={known[trusts].certificate}"
        with pytest.raises(TransportUnavailable) as caught:
            await connect(url, connect_timeout=5).open()
    assert reason in str(caught.value)
    assert str(caught.value).count("\n") == 0
