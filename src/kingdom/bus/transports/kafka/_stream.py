"""The shards of one stream that this process has open, and claims across them.

A process opens a shard when it needs it. It keeps those that its group assigned to it, and closes others when they
were not used for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from kingdom.bus.envelope import new_event_id
from kingdom.bus.errors import BusError, InvalidOption
from kingdom.bus.transport import Clock
from kingdom.bus.transports.kafka._clients import KafkaClients, log
from kingdom.bus.transports.kafka._membership import ShardMember, group_name
from kingdom.bus.transports.kafka._operations import ClaimedEvent
from kingdom.bus.transports.kafka._reader import TopicReader
from kingdom.bus.transports.kafka._shard import Shard
from kingdom.bus.transports.kafka._shard_state import Operation
from kingdom.bus.transports.kafka._topics import StreamTopics, topic_settings

_FIRST_CLAIM_SECONDS: Final = 0.5  # after which a subscriber that claims nothing follows all shards
_UNUSED_SECONDS: Final = 30.0  # after which a shard is closed; leases are renewed more often than that

Rank = tuple[int, float, int]
MakeOperation = Callable[[str, int], Operation]  # of a token and a limit


ClaimedInShard = tuple[Shard, str, ClaimedEvent]  # claimed or recalled, under a token
ObservedShard = tuple[Shard, float]  # with all that was written before somebody asked, and the time by its clock


async def create_topics(clients: KafkaClients, topics: StreamTopics, *, own_clock: bool) -> int:
    """Create the topics of a stream that do not exist; return how many shards it has."""
    settings, known = clients.settings, await clients.partition_counts(topics)
    if topics.data not in known:
        # First and alone: when two processes want another number of shards, this topic decides.
        config = topic_settings(settings, ledger=False, own_clock=own_clock)
        await clients.create_topics({topics.data: config}, settings.shards)
        known |= await clients.until_known([topics.data])
    count = known[topics.data]
    missing = [topic for topic in topics if topic not in known]
    if missing:
        config = topic_settings(settings, ledger=True, own_clock=own_clock)
        await clients.create_topics(dict.fromkeys(missing, config), count)
        known = await clients.until_known(topics)
    uneven = [topic for topic in topics if known[topic] != count]
    if uneven:
        raise InvalidOption(
            f"kafka: {topics.data} has {count} partitions and {uneven[0]} {known[uneven[0]]}: somebody added "
            "partitions; shards cannot be added to a stream, move it to another prefix with kingdom bus move"
        )
    await clients.know([topics.data, topics.ledger])
    return count


class KafkaStream:
    """A stream as this process takes part in it."""

    def __init__(
        self,
        clients: KafkaClients,
        reader: TopicReader,
        topics: StreamTopics,
        count: int,
        clock: Clock,
        own_clock: bool,
    ) -> None:
        self.topics = topics
        self.count = count
        self.wakers: list[Callable[[], None]] = []
        self._clients = clients
        self._reader = reader
        self._clock = clock
        self._own_clock = own_clock
        self._opening: dict[int, asyncio.Task[Shard]] = {}
        self._used: dict[int, float] = {}
        self._members: dict[str, ShardMember] = {}

    # ── shards ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def shard(self, partition: int) -> Shard:
        """Return a shard, opened."""
        self._used[partition] = time.monotonic()
        task = self._opening.get(partition)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._opening[partition] = asyncio.create_task(self._open(partition))
        return await asyncio.shield(task)

    async def _open(self, partition: int) -> Shard:
        shard = Shard(
            self._clients, self._reader, self.topics, partition, self._clock, self._own_clock, self._became_ready
        )
        await shard.open()
        return shard

    async def shards(self, partitions: Iterable[int] | None = None) -> list[Shard]:
        """Return these shards, or all."""
        wanted = range(self.count) if partitions is None else sorted(partitions)
        return await asyncio.gather(*(self.shard(partition) for partition in wanted))

    def shard_of_token(self, token: str) -> int:
        """Return the shard in which a token was given out."""
        number = token.partition(".")[0]
        return int(number) if self.count > 1 and number.isdecimal() and int(number) < self.count else 0

    def _new_token(self, shard: Shard) -> str:
        return new_event_id() if self.count == 1 else f"{shard.partition}.{new_event_id()}"

    def opened(self) -> dict[int, Shard]:
        """Return the shards that are open."""
        done = {number: task for number, task in self._opening.items() if task.done() and not task.cancelled()}
        return {number: task.result() for number, task in done.items() if task.exception() is None}

    async def catch_up(self, shards: Sequence[Shard]) -> None:
        """Read what was written to shards before this call, by any process."""
        ends = await self._clients.end_offsets([place for shard in shards for place in shard.places])
        pairs = zip(ends[::2], ends[1::2], strict=True)
        await asyncio.gather(*(shard.reach(*pair) for shard, pair in zip(shards, pairs, strict=True)))

    async def observed(self) -> list[ObservedShard]:
        """Return all shards, with all that was written before this call, and the time by the clock of each."""
        shards = await self.shards()
        await self.catch_up(shards)
        times = await asyncio.gather(*(shard.settle_time() for shard in shards))
        return list(zip(shards, times, strict=True))

    async def submit_to_all(self, operation: Operation) -> list[Any]:
        """Write an operation to the ledger of each shard; return the outcomes."""
        shards = await self.shards()
        await self.catch_up(shards)
        return await asyncio.gather(*(shard.submit(operation) for shard in shards))

    # ── claim ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, make: MakeOperation, worker: str, limit: int, types: Sequence[str] | None, ids: Collection[str] | None
    ) -> list[ClaimedInShard]:
        """Claim in the shards of this process, or in all when nobody subscribes or events are named."""
        member = self._member(worker, types) if self.count > 1 and self.wakers and ids is None else None
        own = None if member is None else await member.ask()
        if member is None or own is None:
            return await self._claim_in(await self.shards(), make, limit, types, ids)
        claimed = await self._claim_in(await self.shards(own), make, limit, types, ids) if own else []
        if claimed:
            member.claimed_own()
        elif member.may_help():
            others = await self.shards(set(range(self.count)) - own)
            claimed = await self._claim_in(others, make, limit, types, ids) if others else []
            member.helped(bool(claimed))
        return claimed

    async def _claim_in(
        self,
        shards: Sequence[Shard],
        make: MakeOperation,
        limit: int,
        types: Sequence[str] | None,
        ids: Collection[str] | None,
    ) -> list[ClaimedInShard]:
        await self.catch_up(shards)
        found: list[ClaimedInShard] = []
        while ready := [shard for shard in shards if shard.has_claimable()]:
            most = sum(shard.most_claimable() for shard in ready)
            left = limit - len(found)
            is_enough = len(ready) == 1 or min(most, most if ids is None else len(ids)) <= left
            shares = dict.fromkeys(ready, left) if is_enough else await _shares(ready, left, types, ids)
            some = await self._claim_shares(make, shares)
            found += some
            if is_enough or not shares or len(found) == limit:
                break
            if not some:  # nothing is left in these: the last attempt of what was chosen had ended, or others took it
                shards = [shard for shard in shards if shard not in shares]
        return found

    async def _claim_shares(self, make: MakeOperation, shares: dict[Shard, int]) -> list[ClaimedInShard]:
        calls = (self._claim_one(shard, make, share) for shard, share in shares.items())
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        claimed = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        if failures and not any(claimed):
            raise failures[0]
        for failure in failures:  # what other shards gave is held already
            log.warning("a shard of %s gave nothing: %s", self.topics.data, failure)
        return claimed[0] if len(claimed) == 1 else list(heapq.merge(*claimed, key=_rank))

    async def _claim_one(self, shard: Shard, make: MakeOperation, limit: int) -> list[ClaimedInShard]:
        token = self._new_token(shard)
        return [(shard, token, event) for event in await shard.submit(make(token, limit))]

    async def recall(self, make: Callable[[str], Operation]) -> list[ClaimedInShard]:
        """Recall in all shards."""
        shards = await self.shards()
        await self.catch_up(shards)
        recalled = await asyncio.gather(*(self._claim_one(shard, lambda token, _: make(token), 0) for shard in shards))
        return list(heapq.merge(*recalled, key=_rank))

    # ── take part ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _member(self, worker: str, types: Sequence[str] | None) -> ShardMember:
        group = group_name(self.topics.data, types)
        if (member := self._members.get(group)) is None:
            member = ShardMember(self._clients.settings, self.topics.data, group, worker, self._wake)
            self._members[group] = member
        return member

    def _takes_part_in(self, partition: int) -> bool:
        assigned = [member.assigned for member in self._members.values()]
        return not assigned or any(own is None or partition in own for own in assigned)

    def _became_ready(self, partition: int) -> None:
        if self._takes_part_in(partition):
            self._wake()

    def _wake(self) -> None:
        for waker in list(self.wakers):
            waker()

    async def subscribe(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when events may have become claimable."""
        self.wakers.append(wake)
        if self.count > 1:
            await asyncio.sleep(_FIRST_CLAIM_SECONDS)  # a worker claims at once, and so learns which shards are its own
        if not self._members:
            await self.shards()

    async def unsubscribe(self, wake: Callable[[], None]) -> None:
        """Wake somebody no more; leave the groups when it was the last."""
        with contextlib.suppress(ValueError):
            self.wakers.remove(wake)
        if not self.wakers:
            await self._leave_groups()

    async def _leave_groups(self) -> None:
        members = list(self._members.values())
        self._members.clear()
        await asyncio.gather(*(member.close() for member in members))

    async def close_unused(self) -> None:
        """Close shards that belong to another process and were not used for a while."""
        if self.count == 1 or (self.wakers and not self._members):
            return
        patience = max(_UNUSED_SECONDS, 2 * self._clients.settings.timeout)
        for partition, shard in self.opened().items():
            mine = bool(self._members) and self._takes_part_in(partition)
            if not mine and shard.is_idle and time.monotonic() - self._used[partition] > patience:
                del self._opening[partition]
                await shard.close()

    async def close(self) -> None:
        await self._leave_groups()
        opening = list(self._opening.values())
        self._opening.clear()
        for task in opening:
            task.cancel()
        for task in opening:
            with contextlib.suppress(BusError, asyncio.CancelledError):
                await (await task).close()


# ── order across shards ───────────────────────────────────────────────────────────────────────────────────────────────


async def _shares(
    shards: Sequence[Shard], limit: int, types: Sequence[str] | None, ids: Collection[str] | None
) -> dict[Shard, int]:
    """Return how many events to claim in each shard so that the first ``limit`` of all of them are claimed."""
    times = await asyncio.gather(*(shard.settle_time() for shard in shards))
    wanted = None if ids is None else set(ids)
    lines = [_line(shard, now, types, wanted) for shard, now in zip(shards, times, strict=True)]
    first = islice(heapq.merge(*lines, key=lambda item: item[0]), limit)
    return dict(Counter(shard for _, shard in first))


def _line(
    shard: Shard, now: float, types: Sequence[str] | None, wanted: set[str] | None
) -> Iterator[tuple[Rank, Shard]]:
    for entry in shard.state.machine.line(now, types):
        if wanted is None or entry.event_id in wanted:
            yield rank_of(shard, entry.place), shard


def rank_of(shard: Shard, place: tuple[int, float, int]) -> Rank:
    """Return the place of an event beside those of other shards."""
    priority, ready_at, offset = place
    text = shard.state.texts.get(offset)
    return priority, ready_at, 0 if text is None else text.sequence


def _rank(claimed: ClaimedInShard) -> Rank:
    shard, _, event = claimed
    return rank_of(shard, event.place)
