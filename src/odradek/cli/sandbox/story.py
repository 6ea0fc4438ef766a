"""The story of the sandbox: five lessons, each a few things that are done and claims that are checked by counting.

A lesson is a generator of steps, so that its teller may stop after each: a sentence, or a claim with what was counted.
The words are in `texts.py`, in English and Russian, by the key of the step.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from odradek.cli.sandbox.playground import Playground, PlaygroundConsumer
from odradek.client import Consumer, Producer
from odradek.model.errors import ErrorCode, KafkaError, OdradekError

TOPIC: Final = "orders"
GROUP: Final = "shop"
_LOAD_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class StoryText:
    """Something to read; `key` finds its words."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that must be true, and what was counted to find out."""

    key: str
    holds: bool
    values: Mapping[str, object] = field(default_factory=dict)


Step = StoryText | Claim
Lesson = Callable[[Playground], Iterator[Step]]


def partitions_and_parallelism(playground: Playground) -> Iterator[Step]:
    yield StoryText("partitions.intro")
    playground.put_right(TOPIC)
    playground.ensure(TOPIC, 3, min_insync_replicas="2")
    views = playground.partitions(TOPIC)
    leaders = {view.partition: view.leader for view in views}
    yield Claim("partitions.spread", len(set(leaders.values())) == 3, {"leaders": leaders})
    placed = playground.produce(TOPIC, 300)
    counts = Counter(partition for partition, _, _ in placed)
    yield Claim(
        "partitions.counted",
        sum(counts.values()) == 300 and len(counts) == 3,
        {"counts": dict(sorted(counts.items()))},
    )
    by_key: dict[int, set[int]] = {}
    for partition, _, value in placed:
        by_key.setdefault(int(value) % 7, set()).add(partition)
    yield Claim("partitions.keys", all(len(of_key) == 1 for of_key in by_key.values()), {"keys": len(by_key)})
    sent = {value for _, _, value in placed}
    read = [record for record in playground.read_all(TOPIC) if record[2] in sent]
    order = {key: [int(value) for _, _, value in sorted(read) if int(value) % 7 == key] for key in range(7)}
    yield Claim(
        "partitions.order",
        all(offsets == sorted(offsets) for offsets in order.values()),
        {"records": len(read)},
    )


def groups(playground: Playground) -> Iterator[Step]:
    yield StoryText("groups.intro")
    _prepare(playground)
    expected = playground.lag(GROUP, TOPIC) + 100
    playground.add_consumer(GROUP, TOPIC)
    shares = _settled(playground, 1)
    yield Claim("groups.one", shares == [3], {"shares": shares})
    playground.add_consumer(GROUP, TOPIC)
    playground.add_consumer(GROUP, TOPIC)
    shares = _settled(playground, 3)
    yield Claim("groups.three", shares == [1, 1, 1], {"shares": shares})
    playground.add_consumer(GROUP, TOPIC)
    shares = _settled(playground, 4)
    yield Claim("groups.idle", sorted(shares) == [0, 1, 1, 1], {"shares": shares})
    gone = playground.remove_consumer(GROUP)
    shares = _settled(playground, 3)
    yield Claim("groups.takes_over", shares == [1, 1, 1], {"gone": gone.name, "shares": shares})
    playground.produce(TOPIC, 100)
    playground.until("the group has read everything", lambda: playground.lag(GROUP, TOPIC) == 0)
    count = _read_by(playground.members) + len(gone.seen)
    distinct = len({position[:2] for member in (*playground.members, gone) for position in member.seen})
    counted = {"expected": expected, "count": count, "distinct": distinct}
    yield Claim("groups.once", count == distinct == expected, counted)


def offsets_and_replay(playground: Playground) -> Iterator[Step]:
    yield StoryText("offsets.intro")
    _prepare(playground)
    _catch_up(playground)
    playground.produce(TOPIC, 100)
    lag = playground.lag(GROUP, TOPIC)
    yield Claim("offsets.lag", lag == 100, {"lag": lag})
    member = playground.add_consumer(GROUP, TOPIC)
    playground.until("the group has caught up", lambda: playground.lag(GROUP, TOPIC) == 0)
    yield Claim("offsets.goes_on", len(member.seen) == 100, {"count": len(member.seen)})
    stored, unseen = sum(playground.ends(TOPIC).values()), playground.lag("audit", TOPIC)
    second = playground.add_consumer("audit", TOPIC)
    playground.until("the second group has read all", lambda: playground.lag("audit", TOPIC) == 0)
    yield Claim("offsets.second_group", len(second.seen) == unseen, {"count": len(second.seen)})
    playground.remove_all(GROUP)
    playground.remove_all("audit")
    beginning = dict.fromkeys(playground.admin.list_group_offsets(GROUP), 0)
    playground.until(
        "no one is left in the group", lambda: not playground.admin.describe_groups([GROUP])[GROUP].members
    )
    playground.admin.alter_group_offsets(GROUP, beginning)
    again = playground.add_consumer(GROUP, TOPIC)
    playground.until("everything was read again", lambda: playground.lag(GROUP, TOPIC) == 0)
    yield Claim("offsets.replay", len(again.seen) == stored, {"count": len(again.seen)})
    playground.remove_all(GROUP)


def replication_and_failure(playground: Playground) -> Iterator[Step]:
    yield StoryText("replication.intro")
    _prepare(playground)
    view = playground.partitions(TOPIC)[0]
    yield Claim("replication.copies", sorted(view.isr) == [1, 2, 3], {"isr": sorted(view.isr)})
    playground.start_load(TOPIC)
    time.sleep(_LOAD_SECONDS)
    victim = view.leader
    began = time.monotonic()
    playground.broker(victim).kill()
    yield StoryText("replication.killed", {"broker": victim})
    leader = playground.until("another broker leads", lambda: _leader_other_than(playground, victim))
    seconds = time.monotonic() - began
    yield Claim(
        "replication.moved", leader != victim, {"broker": leader, "milliseconds": round(seconds * 1000)}
    )
    before = len(playground.load.acknowledged) if playground.load else 0
    time.sleep(_LOAD_SECONDS)
    after = len(playground.load.acknowledged) if playground.load else 0
    yield Claim("replication.goes_on", after > before, {"count": after - before})
    playground.revive(victim)
    full = playground.until("all replicas are in sync again", lambda: _all_in_sync(playground))
    yield Claim("replication.revived", full, {"broker": victim})
    paused = playground.controller()
    playground.broker(paused).pause()
    yield StoryText("replication.paused", {"broker": paused})
    controller = playground.until(
        "another broker is the controller", lambda: _controller_other_than(playground, paused)
    )
    yield Claim("replication.controller", controller != paused, {"broker": controller})
    playground.broker(paused).resume()
    playground.until("all replicas are in sync again", lambda: _all_in_sync(playground))
    load = playground.stop_load(TOPIC)
    read = Counter(value for _, _, value in playground.read_all(TOPIC))
    kept = playground.acknowledged[TOPIC]
    lost = sum(1 for value in kept if not read[value])
    doubled = sum(1 for count in read.values() if count > 1)
    yield Claim(
        "replication.nothing_lost",
        lost == 0 and doubled == 0 and bool(load.acknowledged),
        {"acknowledged": len(kept), "lost": lost, "doubled": doubled},
    )


def delivery_guarantees(playground: Playground) -> Iterator[Step]:
    yield StoryText("delivery.intro")
    _prepare(playground)
    victims = [broker for broker in (1, 2, 3) if broker != playground.controller()]
    for victim in victims:
        playground.broker(victim).kill()
    playground.until(
        "one replica is left in sync",
        lambda: all(len(partition.isr) == 1 for partition in playground.partitions(TOPIC)),
    )
    refused = _refusal(playground)
    yield Claim(
        "delivery.refused",
        refused is ErrorCode.NOT_ENOUGH_REPLICAS,
        {"error": refused.name if refused else "none"},
    )
    for victim in victims:
        playground.revive(victim)
    playground.until("all replicas are in sync again", lambda: _all_in_sync(playground))
    playground.produce(TOPIC, 1)
    yield StoryText("delivery.revived")
    yield from _at_least_once(playground)
    yield from _exactly_once(playground)


def _at_least_once(playground: Playground) -> Iterator[Step]:
    playground.create("payments", 1)
    playground.produce("payments", 100)
    first = _read_some(playground, 60, commits=False)
    second = _read_some(playground, 100, commits=True)
    twice = len(set(first) & set(second))
    yield Claim(
        "delivery.at_least_once",
        len(set(second)) == 100 and twice == 60,
        {"twice": twice, "read": len(second)},
    )


def _exactly_once(playground: Playground) -> Iterator[Step]:
    playground.create("ledger", 3)
    with Producer(
        playground.address, transactional_id="sandbox", acks="all", **playground.client_settings
    ) as producer:
        producer.init_transactions(30)
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            for index in range(30):
                producer.send("ledger", f"{number}-{index}", partition=index % 3)
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    read = Counter(value.partition(b"-")[0].decode() for _, _, value in playground.read_all("ledger"))
    yield Claim("delivery.exactly_once", read == {"0": 30, "2": 30}, {"read": dict(read)})


LESSONS: Final[dict[str, Lesson]] = {
    "partitions": partitions_and_parallelism,
    "groups": groups,
    "offsets": offsets_and_replay,
    "replication": replication_and_failure,
    "delivery": delivery_guarantees,
}


# -- what a lesson needs, whatever was done before it


def _prepare(playground: Playground) -> None:
    playground.put_right(TOPIC)
    if playground.ensure(TOPIC, 3, min_insync_replicas="2"):
        playground.produce(TOPIC, 300)
    playground.until("all replicas are in sync", lambda: _all_in_sync(playground), seconds=60)


def _catch_up(playground: Playground) -> None:
    """The group has read everything, and no one is in it."""
    if playground.lag(GROUP, TOPIC):
        playground.add_consumer(GROUP, TOPIC)
        playground.until("the group has caught up", lambda: playground.lag(GROUP, TOPIC) == 0, seconds=60)
        playground.remove_all(GROUP)


# -- looking


def _settled(playground: Playground, members: int) -> list[int]:
    """Returns the number of partitions of each consumer, once all three are assigned and the group waits for no member."""

    def assigned_counts() -> list[int]:
        ours = [
            playground_consumer
            for playground_consumer in playground.members
            if playground_consumer.group == GROUP
        ]
        group_description = playground.admin.describe_groups([GROUP])[GROUP]
        held = [partition for member in ours for partition in member.partitions]
        steady = group_description.state == "Stable" and len(group_description.members) == members
        fair = max((len(playground_consumer.partitions) for playground_consumer in ours), default=0) == -(
            -3 // members
        )
        return (
            [len(playground_consumer.partitions) for playground_consumer in ours]
            if steady and fair and sorted(held) == [0, 1, 2]
            else []
        )

    return playground.until(f"{members} consumers have shared the partitions", assigned_counts, seconds=60)


def _read_by(members: list[PlaygroundConsumer]) -> int:
    return sum(len(member.seen) for member in members)


def _leader_other_than(playground: Playground, broker: int) -> int:
    leader = playground.partitions(TOPIC)[0].leader
    return leader if leader not in (-1, broker) else 0


def _controller_other_than(playground: Playground, broker: int) -> int:
    controller = playground.controller()
    return controller if controller not in (-1, broker) else 0


def _all_in_sync(playground: Playground) -> bool:
    return all(len(partition.isr) == len(partition.replicas) for partition in playground.partitions(TOPIC))


def _refusal(playground: Playground) -> ErrorCode | None:
    """Returns the error that a producer with acks=all gets now; None without one."""
    with Producer(
        playground.address, acks="all", retries=0, enable_idempotence=False, **playground.client_settings
    ) as producer:
        delivery = producer.send(TOPIC, "too few replicas", partition=0)
        with suppress(OdradekError):
            producer.flush(20)
        try:
            delivery.result(20)
        except KafkaError as error:
            return error.code
        except OdradekError:
            return None
    return None


def _read_some(playground: Playground, count: int, *, commits: bool) -> list[bytes]:
    """Returns what a consumer of a group reads; one that does not commit "dies" before it does."""
    results: list[bytes] = []
    consumer = Consumer(
        playground.address,
        group_id="till",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,
        **playground.client_settings,
    )
    consumer.subscribe(["payments"])
    deadline = time.monotonic() + 60
    while len(results) < count and time.monotonic() < deadline:
        results += [record.value or b"" for record in consumer.poll(0.2)]
        if commits:
            consumer.commit(timeout_s=10)
    consumer.close(commit=False)
    return results[:count]
