"""The trading example's exchange and push server, over real connections."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal

import pytest

from examples.trading.exchange import Exchange
from examples.trading.exchange_client import Accepted, ExchangeClient, ExchangeError, NoAnswer, Refused, Throttled
from examples.trading.faults import Fault, scripted, seeded
from examples.trading.httpio import send
from examples.trading.states import Status
from examples.trading.store import Attempt


def attempt(number: int = 1) -> Attempt:
    return Attempt(
        id=number,
        order_intent_id=7,
        attempt_no=number,
        identifier=f"everbit-7-{number}",
        status=Status.SENT,
        market="KRW-BTC",
        side="bid",
        price=Decimal("100.5"),
        volume=Decimal("0.1"),
        strategy_key="EXTREME_FLIP",
        trace_id="t",
    )


async def test_an_identifier_is_one_order_however_often_it_is_sent() -> None:
    async with Exchange() as exchange:
        client = ExchangeClient(exchange.url)
        first = await client.place(attempt())
        assert isinstance(first, Accepted)
        assert await client.place(attempt()) == first
        assert list(exchange.orders) == ["everbit-7-1"]
        assert await client.find("everbit-7-1") == first.order_id
        assert await client.find("everbit-7-2") is None


@pytest.mark.parametrize(
    ("fault", "meaning", "placed"),
    [
        (Fault.NONE, Accepted, True),
        (Fault.REJECT, Refused, False),
        (Fault.THROTTLE, Throttled, False),
        (Fault.ERROR_BEFORE, NoAnswer, False),
        (Fault.ERROR_AFTER, NoAnswer, True),
        (Fault.SILENT_BEFORE, NoAnswer, False),
        (Fault.SILENT_AFTER, NoAnswer, True),
        (Fault.LOST_AFTER, NoAnswer, True),
    ],
)
async def test_each_fault_means_what_its_name_says(fault: Fault, meaning: type, placed: bool) -> None:
    async with Exchange(scripted({"7": [fault]}), retry_after=3) as exchange:
        answer = await ExchangeClient(exchange.url, timeout=0.5).place(attempt())
        assert isinstance(answer, meaning)
        if isinstance(answer, Throttled):
            assert answer.retry_after == 3
        assert bool(exchange.orders) is placed
        assert exchange.faults == {fault: 1}


async def test_a_voided_identifier_is_refused_when_its_request_arrives_at_last() -> None:
    async with Exchange(scripted({"7": [Fault.LATE]}), late=1.0) as exchange:
        client = ExchangeClient(exchange.url)
        under_way = asyncio.create_task(ExchangeClient(exchange.url, timeout=5).place(attempt()))
        while not exchange.faults:
            await asyncio.sleep(0.005)
        assert await client.find("everbit-7-1") is None
        assert await client.void("everbit-7-1") is None
        assert isinstance(await under_way, NoAnswer)  # the late order was tried by now
        assert exchange.orders == {}
        assert isinstance(await client.place(attempt()), NoAnswer)  # 410: the one who voided it decides
        assert await client.void("everbit-7-1") is None  # and may ask twice
        assert isinstance(await client.place(attempt(2)), Accepted)


async def test_voiding_comes_too_late_for_an_order_that_is_placed() -> None:
    async with Exchange() as exchange:
        client = ExchangeClient(exchange.url)
        answer = await client.place(attempt())
        assert isinstance(answer, Accepted)
        assert await client.void("everbit-7-1") == answer.order_id
        assert exchange.voided == set()


async def test_a_late_order_is_placed_after_its_client_gave_up() -> None:
    async with Exchange(scripted({"7": [Fault.LATE]}), late=1.0) as exchange:
        client = ExchangeClient(exchange.url, timeout=0.3)
        assert isinstance(await client.place(attempt()), NoAnswer)
        assert await client.find("everbit-7-1") is None
        async with asyncio.timeout(10):
            while await client.find("everbit-7-1") is None:
                await asyncio.sleep(0.01)


async def test_an_exchange_that_is_away_is_no_answer_and_questions_raise() -> None:
    async with Exchange() as exchange:
        client = ExchangeClient(exchange.url)
    answer = await client.place(attempt())
    assert isinstance(answer, NoAnswer)
    assert "connection lost" in answer.reason
    with pytest.raises(ExchangeError, match="GET /orders/everbit-7-1"):
        await client.find("everbit-7-1")


async def test_a_failing_question_raises_and_a_failing_void_may_have_worked() -> None:
    async with Exchange(flaky=1.0, rng=random.Random(1)) as exchange:
        client = ExchangeClient(exchange.url)
        with pytest.raises(ExchangeError, match="answered 503"):
            await client.find("everbit-7-1")
        for _ in range(20):
            with pytest.raises(ExchangeError, match="answered 503"):
                await client.void("everbit-7-1")
        assert exchange.voided == {"everbit-7-1"}


async def test_a_push_is_delivered_once_for_one_event() -> None:
    async with Exchange() as exchange:
        for message, status in (("first", 201), ("again", 200)):
            response = await send(
                "POST", f"{exchange.url}/push", {"message": message}, headers={"Idempotency-Key": "e1"}, within=5
            )
            assert response.status == status
        assert exchange.delivered == {"e1": {"message": "first"}}
        assert (await send("POST", f"{exchange.url}/push", {}, within=5)).status == 400
        assert (await send("GET", f"{exchange.url}/nowhere", within=5)).status == 404


async def test_a_client_that_speaks_no_http_harms_nobody() -> None:
    async with Exchange() as exchange:
        host, port = exchange.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"hello\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert isinstance(await ExchangeClient(exchange.url).place(attempt()), Accepted)


def test_seeded_faults_repeat_and_cover_every_kind() -> None:
    first, second = seeded(5), seeded(5)
    drawn = [first(str(tag), 0) for tag in range(300)]
    assert drawn == [second(str(tag), 0) for tag in range(300)]
    assert set(drawn) == set(Fault)
